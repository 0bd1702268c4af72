// All jobs of an engine, and the rules by which they move on: which level may begin, which memory is held, what is
// reported. The levels' threads do the work and tell this table, which does no I/O. Every change of a job's standing at
// a level goes through kTransitions (level_state.h), every change of a slot through kSlotTransitions (slot_pool.h).
//
// Methods may be called from any thread.
#ifndef DEEPFREEZE_ENGINE_JOB_TABLE_H_
#define DEEPFREEZE_ENGINE_JOB_TABLE_H_

#include <atomic>
#include <deque>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/mutex.h"
#include "base/thread_clocks.h"
#include "engine/job.h"

namespace deepfreeze {

// df_report in C++.
struct Report {
  int64_t step = -1;
  int level = 0;
  Code code = Code::kOk;
  bool released = false;
  int32_t diverged = -1;
  uint64_t nbytes = 0;
  double local_s = 0;
  double written_s = 0;
  double external_s = 0;
  std::string message;
  double copy_s = 0;
  double cpu_s = -1;
  int64_t superseded_by = -1;
};

// df_progress in C++.
struct UnderWay {
  int64_t step = 0;
  int level = 0;
  bool published = false;
  uint64_t nbytes = 0;
  uint64_t local_bytes = 0;
  uint64_t external_bytes = 0;
  double age_s = 0;
  std::string waits_for;
};

// Memory for the next capture.
struct Reservation {
  Home home = Home::kCaller;
  int number = SlotPool::kNoSlot;  // of the slot or buffer; kNoSlot: nothing is reserved
  char* base = nullptr;            // null until the memory is bound
  BufferSpan span;                 // the same memory
  JobRef before;                   // whose buffer it is, part by part, until that job has left it; null: nobody's
  PartOrder order;                 // in which the capture has come to the parts
};

// A change that kTransitions or kSlotTransitions does not have is a fault of the engine's own. Where tests run it ends
// the process, so that the test that has found it shows the stack. In a training it fails the step: the training must
// not die for a checkpoint, and a checkpoint whose standing is unknown must not be called safe.
enum class OnFault { kAbort, kFailStep };
#if defined(NDEBUG) && !defined(DF_ABORT_ON_FAULT)
inline constexpr OnFault kOnFault = OnFault::kFailStep;
#else
inline constexpr OnFault kOnFault = OnFault::kAbort;
#endif

struct TableOptions {
  uint32_t in_flight = 1;                                                      // as in df_options
  uint32_t slots = 1;                                                          // as in df_options
  bool local_tier = false;                                                     // whether there is one
  uint64_t uncommitted = 0;                                                    // as in df_options
  bool one_memory = false;                                                     // as in Options
  bool slots_are_memory = false;                                               // whether slots count there
  std::vector<LevelRow> levels{std::begin(kLevelRows), std::end(kLevelRows)};  // begins with kLevelRows
  OnFault on_fault = kOnFault;
  const ThreadClocks* clocks = nullptr;  // of the engine's threads; null: it is not known what they use
};

class JobTable {
 public:
  // REQUIRES: env outlives this.
  JobTable(Env* env, const TableOptions& options);

  // The caller's side: df_engine_* of the public header say what these do.
  // captured: the job's regions lie in the reserved memory, which the job takes over. A job without a capture holds no
  // memory, so it does not wait; its step fails at the transfer, which tells the other ranks.
  Status Submit(const JobRef& job, bool captured, uint64_t timeout_ms);
  Status Wait(int64_t step, int level, uint64_t timeout_ms);
  // Waits until all jobs are over.
  Status Drain(CondVar::Time deadline);
  std::vector<Report> Poll(size_t capacity);
  // Of the checkpoints that are neither committed nor failed, the oldest first.
  std::vector<UnderWay> Unfinished(size_t capacity) const;

  // Waits, at most timeout_ms, until a slot or a buffer is free, and keeps it until a Submit takes it or Unreserve
  // gives it back. A buffer is also given while an older checkpoint is being written from it: as soon as that part is
  // free to which the last capture came first. REQUIRES: nothing is reserved. RETURNS kIo if the local tier has been
  // given up, and its slots with it.
  Status Reserve(Home home, uint64_t timeout_ms, int* number);
  // Says where the memory is that Reserve has reserved, and how large the parts of a buffer are. REQUIRES: there is a
  // reservation.
  void Bind(char* base, uint64_t size, uint64_t part_bytes);
  // Called before the capture writes to n bytes of the reserved memory: waits, at most timeout_ms, until no older
  // checkpoint needs the parts of the buffer that they are in.
  Status TakeParts(const char* data, uint64_t n, uint64_t timeout_ms);
  // Waits, at most timeout_ms, until the reserved memory is no older checkpoint's any more. REQUIRES: the capture is
  // complete.
  Status AwaitWhole(uint64_t timeout_ms);
  // Waits until the memory of one more buffer or slot may be found ahead of its capture, beside `present` ones: until
  // as many checkpoints may be uncommitted, and, if all memory of captures is bounded together, until there is room in
  // the bound. RETURNS false if the engine is stopping.
  bool AwaitRoomFor(uint32_t present);
  // REQUIRES: there is a reservation.
  void Unreserve();
  Reservation reserved() const;
  // Where the reserved memory begins; null without a reservation, or before Bind.
  char* reserved_base() const;
  // For how many more captures there is memory now, without waiting: in slots or in buffers.
  uint32_t Room(Home home) const;

  // Has the transfer of `step`, and those of newer steps, not begin until the next call, or Drain. -1: of none; also if
  // it can't be held: its transfer has begun, or it is over, or the oldest that is not, or unknown. RETURNS whether it
  // is held.
  bool Hold(int64_t step);
  // The held step is given up for the newer step `by`, and is over. RETURNS false, and does nothing, if it is not held.
  bool Replace(int64_t step, int64_t by);
  // The step is given up for the newer step `by`, which is committed: the external level's threads end it, and tell the
  // other ranks, unless it is over by then. Does nothing if it is held: it may be given up otherwise.
  void Supersede(int64_t step, int64_t by);
  // Sets how many checkpoints may be in each stage of the external level at once, beside those that are in it by now,
  // and how many may be uncommitted (0: as in df_options). REQUIRES: a stage has as many threads.
  void Tune(size_t transfers, uint64_t uncommitted);
  // The steps that are neither committed nor failed.
  std::vector<int64_t> UnfinishedSteps() const;
  // Whether a newer step is committed, as far as this rank has seen.
  bool NewerCommitted(int64_t step) const;

  // Notes that bytes of this rank have moved, or those of another rank that it waits for.
  void Moved() { moved_us_ = env_->NowMicros(); }
  // How many milliseconds ago that was noted last.
  uint64_t IdleMs() const {
    const uint64_t moved_us = moved_us_;  // before the clock is read
    return (env_->NowMicros() - moved_us) / 1000;
  }

  // Ends every wait, here and in the levels.
  void Stop();
  bool stopping() const { return stopping_; }

  // The levels' side. Only the thread that has begun a job moves the job on, or fails it, at that level.
  // Waits for the oldest job that this stage of the level may begin, and begins it. RETURNS null if the engine is
  // stopping.
  JobRef Next(LevelId level, size_t stage);
  // As Next, without waiting. RETURNS null also if there is no such job.
  JobRef TryNext(LevelId level, size_t stage);
  // The stage is done; after the last one the level has the job. REQUIRES: the caller has begun the job by Next.
  // Allocates no memory.
  void Finish(const JobRef& job, LevelId level);
  // The level will not have the job. The step fails if the level is kExternal; without another one it goes on.
  // Allocates no memory.
  void Fail(const JobRef& job, LevelId level, Status why);
  // Waits until the level has settled. RETURNS the job's state there, which is another one if it is `deadline` or the
  // engine is stopping.
  LevelState AwaitSettled(const JobRef& job, LevelId level, CondVar::Time deadline);

  // Waits until a slot is free, gives it to the job and RETURNS its number; a job that has a slot keeps it. If none is
  // free, the slot of a failed checkpoint is taken. kNoSlot: the engine is stopping, no slot will get free, or the job
  // is over.
  int AcquireSlot(const JobRef& job);
  // As AcquireSlot, without waiting. RETURNS false if it would wait; else *slot is what AcquireSlot returns.
  bool TryAcquireSlot(const JobRef& job, int* slot);
  // The step is committed: gives back the slots of older steps that are over. Its own follows when the external level
  // has finished.
  void ReleaseSlots(int64_t step);
  // Gives up the local tier: from now on jobs go past it. The first call reports the notice.
  void DropLocalTier(const std::string& notice);
  bool local_tier() const;
  // The numbers of the slots that hold nothing worth keeping.
  std::vector<uint32_t> IdleSlots() const;

  // Called by the transfer before it writes n extents, from number `first` on. RETURNS whether they may be read from
  // the job's memory; EndRead must follow then. Otherwise they are read from the job's slot.
  bool BeginRead(const JobRef& job, size_t first, size_t n);
  void EndRead(const JobRef& job);
  // The level has what it wants of these extents, and will not read them again: the next capture may have their memory.
  // Allocates no memory.
  void DoneReading(const JobRef& job, LevelId level, size_t first, size_t n);
  // The level wants to read all extents again. Does nothing if the next capture has the job's memory by now.
  void ReadAgain(const JobRef& job, LevelId level);
  // Whether the level has said that of all of them.
  bool HasRead(const JobRef& job, LevelId level, size_t first, size_t n) const;
  // Whether the job's slot is whole.
  bool OnSlot(const JobRef& job) const;

  void SetDivergence(const JobRef& job, const Divergence& divergence);
  // For messages of waits: "waits for its commit (...)".
  void SetWaitsFor(const JobRef& job, std::string what);
  // Sleeps for `us` microseconds; ends early when the engine stops, a new job is submitted or one is given up.
  void PauseCommit(uint64_t us);
  // Sleeps for `ms` milliseconds; ends early when the engine stops.
  void Pause(uint64_t ms);
  // Has the next poll report a notice.
  void Notify(const std::string& notice);

 private:
  using Jobs = std::map<int64_t, JobRef>;

  // Waits until `met`, which is called with the mutex held. RETURNS false if it is `deadline`, or the engine is
  // stopping.
  template <typename Met>
  bool AwaitLocked(CondVar::Time deadline, const Met& met) REQUIRES(mutex_) {
    while (!stopping_) {
      if (met()) return true;
      if (!changed_.WaitUntil(&mutex_, deadline)) return !stopping_ && met();
    }
    return false;
  }
  JobRef FindLocked(LevelId level, size_t stage) REQUIRES(mutex_);
  // How many more checkpoints may begin this stage now; of the commit, beside the oldest one.
  size_t PlacesLocked(LevelId level, size_t stage) const REQUIRES(mutex_);
  // The step is over for the external level, which will not have it, because of `why`.
  void FailExternalLocked(Job* job, Status why) REQUIRES(mutex_);
  bool MayBeginLocked(const Job& job, LevelId level) const REQUIRES(mutex_);
  // Makes the change, or a fault. RETURNS whether it was made.
  bool ChangeLocked(Job* job, LevelId level, Change change) REQUIRES(mutex_);
  void MoveSlotLocked(Job* job, SlotPool* pool, int number, SlotState to) REQUIRES(mutex_);
  void FaultLocked(Job* job) noexcept REQUIRES(mutex_);
  bool AcquireSlotLocked(Job* job) REQUIRES(mutex_);
  int TakeSlotLocked(int64_t step) REQUIRES(mutex_);
  // Gives the job's slot the state that follows from the job's.
  void SettleSlotLocked(Job* job) REQUIRES(mutex_);
  // The job's fate is known: the levels that have not begun it need not.
  void EndLocked(Job* job) REQUIRES(mutex_);
  void NoteCpuLocked(Job* job) REQUIRES(mutex_);
  void EnterLocked(Job* job, bool captured) REQUIRES(mutex_);
  void TakeReservedLocked(Job* job) REQUIRES(mutex_);
  // The job whose buffer the next capture may have part by part; null if there is none, or a whole buffer comes free.
  JobRef PassableLocked() const REQUIRES(mutex_);
  // How many captures are held in memory of the caller's; each that has yet to get a slot in memory counts twice.
  uint32_t WithCallerLocked() const REQUIRES(mutex_);
  // How many slots are memory that holds something.
  size_t SlotsInMemoryLocked() const REQUIRES(mutex_);
  // Whether memory of so many captures more may be held, if all memory of captures is bounded together.
  bool OneMemoryRoomLocked(size_t more) const REQUIRES(mutex_);
  void GiveUpMemoryLocked(Job* job) REQUIRES(mutex_);
  void DropReaderLocked(Job* job) REQUIRES(mutex_);
  void FreeMemoryLocked(Job* job) REQUIRES(mutex_);
  void ReleaseWantedLocked() REQUIRES(mutex_);
  Jobs::iterator ForgetLocked(Jobs::iterator it) REQUIRES(mutex_);
  uint32_t HeldLocked() const REQUIRES(mutex_);
  // Whether one more job stays within both bounds: of the jobs held in memory, and of those not yet committed. Without
  // the second one partial directories would pile up where there is no local tier, whose slots bound the backlog too.
  bool RoomLocked() const REQUIRES(mutex_) { return HeldLocked() < in_flight_ && BacklogRoomLocked() > 0; }
  // How many more checkpoints may be captured before one of the present ones is over.
  uint32_t BacklogRoomLocked() const REQUIRES(mutex_);
  double SinceLocked(const Job& job) const REQUIRES(mutex_);
  // What its levels' threads wait for, "" if none waits.
  std::string WaitsLocked(const Job& job) const REQUIRES(mutex_);
  std::string DescribeLocked(const Job& job) const REQUIRES(mutex_);
  std::string DescribeAllLocked() const REQUIRES(mutex_);

  Env* const env_;
  const uint32_t in_flight_;
  const bool one_memory_;
  const bool slots_are_memory_;
  const std::vector<LevelRow> rows_;
  const OnFault on_fault_;
  const ThreadClocks* const clocks_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> moved_us_;
  mutable Mutex mutex_;
  CondVar changed_;  // anything at all; the waiters are the stages' threads and the caller's
  size_t transfers_ GUARDED_BY(mutex_);
  uint64_t uncommitted_ GUARDED_BY(mutex_);
  bool local_tier_ GUARDED_BY(mutex_);
  uint32_t memory_wanted_ GUARDED_BY(mutex_) = 0;  // for how many captures memory is waited for
  uint32_t parts_wanted_ GUARDED_BY(mutex_) = 0;   // by how many threads for parts of the reserved buffer
  int64_t newest_submitted_ GUARDED_BY(mutex_) = -1;
  int64_t newest_committed_ GUARDED_BY(mutex_) = -1;
  int64_t held_ GUARDED_BY(mutex_) = -1;      // the step whose transfer is not to begin
  uint64_t given_up_ GUARDED_BY(mutex_) = 0;  // how many steps were given up for newer ones
  double cpu_noted_ GUARDED_BY(mutex_) = 0;   // CPU seconds that the ended jobs have been told of
  Jobs jobs_ GUARDED_BY(mutex_);
  SlotPool slots_ GUARDED_BY(mutex_);
  SlotPool buffers_ GUARDED_BY(mutex_);
  Reservation reserved_ GUARDED_BY(mutex_);
  size_t first_part_ GUARDED_BY(mutex_) = 0;  // to which the last capture in a buffer came first
  std::deque<std::string> notices_ GUARDED_BY(mutex_);
  std::map<int64_t, Status> forgotten_ GUARDED_BY(mutex_);  // how the last forgotten jobs ended, for a late Wait
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_JOB_TABLE_H_
