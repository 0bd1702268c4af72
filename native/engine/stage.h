// What the levels and their stages have in common.
#ifndef DEEPFREEZE_ENGINE_STAGE_H_
#define DEEPFREEZE_ENGINE_STAGE_H_

#include <exception>
#include <functional>
#include <string>

#include "base/counters.h"
#include "base/log.h"
#include "base/worker_pool.h"
#include "engine/job_table.h"
#include "engine/options.h"
#include "engine/progress.h"
#include "engine/upkeep.h"
#include "local/slot_store.h"
#include "store/store.h"

namespace deepfreeze {

// Owned by the engine; outlives the levels.
struct StageContext {
  const Options& options;
  Env* env;
  JobTable* table;
  UpkeepQueue* upkeep;
  SlotStore* slots;  // null without a local tier
  Store* store;      // the run: no stage asks Env for anything that is in it
  Meeting* meeting;
  WorkerPool* pool;
  Progress* progress;
  Counters* counters;
  Log* log;
};

// Calls `work`, which returns a Status. RETURNS that; kIo if work throws, as it does when memory runs out. No
// exception may leave a thread of the engine. So a stage does all its work inside of this function, except for the
// calls that move a job on in the table: those allocate no memory.
template <typename Work>
Status Contained(const Work& work) noexcept {
  try {
    return work();
  } catch (const std::exception& error) {
    try {
      return Status(Code::kIo, std::string("the engine could not go on: ") + error.what());
    } catch (...) {
      return Status(Code::kIo, "out of memory");  // short enough to need none
    }
  }
}

// Calls `work` and ignores its exceptions: the engine can go on without it.
template <typename Work>
void BestEffort(const Work& work) noexcept {
  (void)Contained([&] {
    work();
    return Status();
  }).ok();
}

// RETURNS kSuperseded if the job is given up for a newer step, else ok.
Status GivenUp(const JobRef& job);
// What rank 0's verdict means for the job, of which Meeting::Look has said `why`; if rank 0 has given the job up, this
// rank does too. RETURNS kSuperseded, kIncomplete for a failure, else ok.
Status Heed(const JobRef& job, Verdict verdict, const std::string& why);

// Tells the other ranks that the step has failed here, so that they need not wait for this rank's part. If they can't
// be told they wait until commit_timeout_ms is over. RETURNS `why`; but kSuperseded if the job is given up, also if
// rank 0 alone knows that so far: then it has not failed, whatever has happened to it, and rank 0 tells that.
Status FailStep(const StageContext& context, const JobRef& job, Status why) noexcept;

// How many threads of the pool may copy or checksum at a time: a quarter of its limit, at least 2, because this takes
// cores from the training. All threads may write to the disk at a time: after each write a thread waits for a core, on
// busy cores for longer than the write took, and the disk is idle meanwhile unless other threads write.
size_t Copiers(const WorkerPool& pool);

// Calls work for each extent in [0, n) on the pool's threads, at most `width` at a time. After the first error no more
// extents are begun, and the error is returned. kClosed if the engine is stopping. urgent: see WorkerPool::Run.
Status ForEachExtent(const StageContext& context, size_t n, size_t width, bool urgent,
                     const std::function<Status(size_t worker, size_t i)>& work);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_STAGE_H_
