// All jobs of an engine, and the rules by which they move on: which memory is held, which slot is free, what is
// reported. The stages do the work and tell this table, which does no I/O.
//
// Methods may be called from any thread, except NextFor*: each is called by the thread of its stage alone.
#ifndef DEEPFREEZE_ENGINE_JOB_TABLE_H_
#define DEEPFREEZE_ENGINE_JOB_TABLE_H_

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "base/env.h"
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
};

// Work of retention. `committed`: clean up after the commit of this step, -1 for nothing; `gathered`: committed steps
// whose commit has gathered the records, so that those which the ranks published can go; `remove`: committed
// checkpoints to remove.
struct Upkeep {
  int64_t committed = -1;
  std::vector<int64_t> gathered;
  std::vector<int64_t> remove;
};

class JobTable {
 public:
  // env must outlive this. in_flight and slots as in df_options; local_tier: whether there is one.
  JobTable(Env* env, uint32_t in_flight, uint32_t slots, bool local_tier);

  // The caller's side: df_engine_* of the public header say what these do.
  // captured: the job's regions lie in the reserved memory, which the job takes over. A job without a capture holds no
  // memory, so it does not wait; its step fails at the transfer, which tells the other ranks.
  Status Submit(JobRef job, bool captured, uint64_t timeout_ms);
  Status Wait(int64_t step, int level, uint64_t timeout_ms);
  Status Drain(uint64_t timeout_ms);
  std::vector<Report> Poll(size_t capacity);

  // Reserve memory for the next capture: a slot, or one of in_flight buffers. They wait, at most timeout_ms, until one
  // is free, and keep it until a Submit takes it or Unreserve gives it back. Only one is reserved at a time: the caller
  // asks Reserved() first. kIo: the local tier has been given up, and its slots with it.
  Status ReserveSlot(uint64_t timeout_ms, uint32_t* slot);
  Status ReserveBuffer(uint64_t timeout_ms, uint32_t* buffer);
  // Follows a Reserve*: says at which address the reserved memory is, and its bytes.
  void Bind(char* base, uint64_t size);
  void Unreserve();
  // The address of the reserved memory; null if nothing is reserved.
  char* Reserved() const;
  // Whether data points into the reserved memory.
  bool InReserved(const char* data) const;

  // For how many more captures there is memory now, without waiting: in slots, or in buffers.
  uint32_t Room(bool in_slots) const;

  // Notes that bytes of this rank have moved, or those of another rank that it waits for.
  void Moved() { moved_us_ = env_->NowMicros(); }
  // How many milliseconds ago that was noted last.
  uint64_t IdleMs() const {
    const uint64_t moved_us = moved_us_;  // before the clock is read
    return (env_->NowMicros() - moved_us) / 1000;
  }

  // Ends every wait, here and in the stages.
  void Stop();
  bool stopping() const { return stopping_; }

  // The stages' side. Only the stage that works on a job moves the job on or fails it. NextFor* wait for a job of that
  // phase, mark the oldest one as running and return it; null when the engine is stopping.
  JobRef NextForLocal();
  JobRef NextForTransfer() { return Next(Phase::kForTransfer); }
  JobRef NextForPublish() { return Next(Phase::kForPublish); }
  JobRef NextForCommit() { return Next(Phase::kForCommit); }
  // Called by the transfer for a job that was captured in a slot: waits until the local writer has finished with it.
  void AwaitChecked(const JobRef& job);

  // Waits until a slot is free, gives it to the job and returns its number; a job that has a slot keeps it. A slot is
  // free if its step or a newer one is committed. If none is free, the slot of a failed checkpoint is taken. -1: the
  // engine is stopping, or later captures have all slots; waiting for them would never end, because steps are committed
  // in order.
  int AcquireSlot(const JobRef& job);
  // With one of these the stage that works on a job says that it has finished; `running` ends. They allocate no memory,
  // so they can't fail.
  void FinishLocal(const JobRef& job);     // the job's slot is whole
  void SkipLocal(const JobRef& job);       // the job goes on without a slot
  void FinishTransfer(const JobRef& job);  // the job is written; releases its memory
  void Published(const JobRef& job);       // this rank's part is durable and its record published
  void Committed(const JobRef& job);       // the job stays running until Settle
  void Settle(const JobRef& job);
  void Fail(const JobRef& job, Status failure);

  // Work for retention, which has a thread of its own; Drain waits for it. After the commit of a step: cleans up; or,
  // if the step's name is not known to be durable, holds all work back until a later commit is. Allocates no memory.
  void AskCleanUp(int64_t committed, bool durable);
  void AskRemoval(std::vector<int64_t> steps);
  // Waits for such work. False: the engine is stopping, and all that was asked for is done.
  bool NextForRetention(Upkeep* upkeep);
  void FinishUpkeep();
  // Waits until all that was asked for is done, or held back. False at once if there is nothing to wait for. Ends early
  // when the engine stops.
  bool AwaitUpkeep();

  // Gives up the local tier: from now on jobs go past it. The first call reports the notice.
  void DropLocalTier(const std::string& notice);
  bool local_tier() const;
  // The numbers of the slots that hold nothing worth keeping.
  std::vector<uint32_t> IdleSlots() const;

  // Called by the transfer before each chunk. True: it may read the chunk from the job's memory, and must then call
  // EndRead. False: it reads the chunk from the job's slot.
  bool BeginRead(const JobRef& job);
  void EndRead(const JobRef& job);

  void SetDivergence(const JobRef& job, const Divergence& divergence);
  // For messages of waits: "waits for its commit (...)".
  void SetWaitsFor(const JobRef& job, std::string what);
  // Sleeps for `us` microseconds; ends early when the engine stops or a new job is submitted.
  void PauseCommit(uint64_t us);
  // Sleeps for `ms` milliseconds; ends early when the engine stops.
  void Pause(uint64_t ms);
  // Has the next poll report a notice.
  void Notify(const std::string& notice);

 private:
  bool UpkeepLocked() const { return !held_ && (upkeep_.committed >= 0 || !upkeep_.remove.empty()); }
  JobRef Next(Phase phase);
  JobRef FindLocked(Phase phase) const;
  Status Reserve(uint64_t timeout_ms, const std::function<bool(const JobRef&)>& take);
  bool TakeSlotLocked(const JobRef& job);
  bool SlotsWaitForLocked(const Job& job) const;
  void TakeReservedLocked(const JobRef& job);
  std::string DescribeAllLocked() const;
  void ReleaseLocked(Job* job);
  void ReleaseWantedLocked();
  void FreeSlotsLocked();
  void ForgetLocked();
  uint32_t HeldLocked() const;
  // Whether one more job stays within both bounds: of the jobs held in memory, and of those not yet committed. Without
  // the second one partial directories would pile up where there is no local tier, whose slots bound the backlog too.
  bool RoomLocked() const { return HeldLocked() < in_flight_ && BacklogRoomLocked() > 0; }
  uint32_t BacklogRoomLocked() const;
  double SinceLocked(const Job& job) const;
  std::string DescribeLocked(const Job& job) const;

  Env* const env_;
  const uint32_t in_flight_;
  const Phase first_phase_;  // of new jobs; kForLocal also after the local tier is given up, which keeps jobs in order
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // anything at all; the waiters are few
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> moved_us_;
  bool local_tier_;
  uint32_t memory_wanted_ = 0;  // how many submits and reservations wait for memory
  int64_t newest_submitted_ = -1;
  Upkeep upkeep_;         // asked for
  bool held_ = false;     // the newest commit may be lost by a loss of power, so nothing older is deleted
  bool keeping_ = false;  // retention works
  int64_t newest_committed_ = -1;
  std::map<int64_t, JobRef> jobs_;
  std::vector<JobRef> slot_jobs_;    // null: free
  std::vector<JobRef> buffer_jobs_;  // null: free
  JobRef reserved_;
  std::deque<std::string> notices_;
  std::map<int64_t, Status> forgotten_;  // how the last forgotten jobs ended, for a late Wait
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_JOB_TABLE_H_
