// All jobs of an engine, and the rules by which they move on: what is held in memory, which slot is free, what is
// reported. The stages do the work and tell this table; it does no I/O.
//
// Any method from any thread, but Next* of one stage from that stage's thread alone.
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

class JobTable {
 public:
  JobTable(Env* env, uint32_t in_flight, uint32_t slots, bool local_tier);

  // The caller's side; df_engine_* of the public header say what these do.
  // captured: the job lies in the reserved memory, which is its own from now on.
  Status Submit(JobRef job, bool captured, uint64_t timeout_ms);
  Status Wait(int64_t step, int level, uint64_t timeout_ms);
  Status Drain(uint64_t timeout_ms);
  std::vector<Report> Poll(size_t capacity);

  // Memory for the next capture: a slot, or one of in_flight buffers. Wait until one is free and keep it for the
  // submit of regions that lie in it. One at a time. kIo: the local tier has been given up, and with it its slots.
  Status ReserveSlot(uint64_t timeout_ms, uint32_t* slot);
  Status ReserveBuffer(uint64_t timeout_ms, uint32_t* buffer);
  // Where the reserved memory is.
  void Bind(char* base, uint64_t size);
  void Unreserve();
  // Its address; null if nothing is reserved.
  char* Reserved() const;
  bool InReserved(const char* data) const;

  // How many more captures there would be memory for now, without waiting: in slots, or in the caller's or the
  // engine's buffers.
  uint32_t Room(bool in_slots) const;

  // Bytes moved: this rank's, or another one's that it waits for.
  void Moved() { moved_us_ = env_->NowMicros(); }
  // How long ago that was.
  uint64_t IdleMs() const {
    const uint64_t moved_us = moved_us_;  // before the clock is read
    return (env_->NowMicros() - moved_us) / 1000;
  }

  // Makes every wait end, here and in the stages.
  void Stop();
  bool stopping() const { return stopping_; }

  // The stages' side: only the stage that a job runs in moves or fails it. Next*: the oldest job of that phase, marked
  // as running; null when stopping. Blocks.
  JobRef NextForLocal();
  JobRef NextForTransfer() { return Next(Phase::kForTransfer); }
  JobRef NextForPublish() { return Next(Phase::kForPublish); }
  JobRef NextForCommit() { return Next(Phase::kForCommit); }
  // The transfer of a job that was captured in a slot: blocks until the local writer is done with it.
  void AwaitChecked(const JobRef& job);

  // Blocks until a slot is free and gives it to the job; -1 when stopping, or if every slot has gone to a later
  // capture, whose commit waits for this job's. A slot is free if its step, or a newer one, is committed; if there is
  // none, a failed checkpoint gives up its own.
  int AcquireSlot(const JobRef& job);
  // What the stage that runs the job says when it is done with it; each ends `running`. None takes memory, so that it
  // can be said when there is none.
  void FinishLocal(const JobRef& job);     // its slot is whole
  void SkipLocal(const JobRef& job);       // goes on without a slot
  void FinishTransfer(const JobRef& job);  // written; releases the memory
  void Published(const JobRef& job);       // durable, and its record says so
  void Committed(const JobRef& job);       // stays running until Settle: retention follows
  void Settle(const JobRef& job);
  void Fail(const JobRef& job, Status failure);

  // From now on jobs go past the local tier.
  void DropLocalTier(const std::string& notice);
  bool local_tier() const;
  // Slots that hold nothing worth keeping.
  std::vector<uint32_t> IdleSlots() const;

  // Whether the job's next chunk is to be read from the caller's memory. True: EndRead must follow.
  bool BeginRead(const JobRef& job);
  void EndRead(const JobRef& job);

  void SetDivergence(const JobRef& job, const Divergence& divergence);
  void SetWaitsFor(const JobRef& job, std::string what);
  // Sleeps, but not beyond Stop or the arrival of a new job for the commit.
  void PauseCommit(uint64_t ms);
  // Sleeps, but not beyond Stop.
  void Pause(uint64_t ms);
  void Notify(const std::string& notice);

 private:
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
  // Whether one more job keeps within the bounds of what is held in memory and of what is not yet committed: without a
  // local tier, whose slots are one bound of the backlog, partial directories would pile up.
  bool RoomLocked() const { return HeldLocked() < in_flight_ && BacklogRoomLocked() > 0; }
  uint32_t BacklogRoomLocked() const;
  double SinceLocked(const Job& job) const;
  std::string DescribeLocked(const Job& job) const;

  Env* const env_;
  const uint32_t in_flight_;
  const Phase first_phase_;  // also of jobs that will pass a dropped local tier, which keeps them in order
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // anything at all; the waiters are few
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> moved_us_;
  bool local_tier_;
  uint32_t memory_wanted_ = 0;  // submits that wait
  int64_t newest_submitted_ = -1;
  int64_t newest_committed_ = -1;
  std::map<int64_t, JobRef> jobs_;
  std::vector<JobRef> slot_jobs_;    // null: free
  std::vector<JobRef> buffer_jobs_;  // null: free
  JobRef reserved_;
  std::deque<std::string> notices_;
  std::map<int64_t, Status> forgotten_;  // how the last ones ended, for a late Wait
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_JOB_TABLE_H_
