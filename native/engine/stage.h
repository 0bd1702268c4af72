// What all stages share.
#ifndef DEEPFREEZE_ENGINE_STAGE_H_
#define DEEPFREEZE_ENGINE_STAGE_H_

#include <exception>
#include <functional>
#include <string>

#include "base/worker_pool.h"
#include "engine/job_table.h"
#include "engine/options.h"
#include "engine/progress.h"
#include "local/slot_store.h"

namespace deepfreeze {

// Owned by the engine; outlives the stages.
struct StageContext {
  const Options& options;
  Env* env;
  JobTable* table;
  SlotStore* slots;  // null without a local tier
  WorkerPool* pool;
  Progress* progress;
};

// What work returned, or kIo if it threw, as it does when memory runs out: nothing may leave a thread of the engine.
// All that a stage does is done in here, but for what moves a job on in the table, which takes no memory.
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

// For work that may fail: the engine goes on without it.
template <typename Work>
void BestEffort(const Work& work) noexcept {
  (void)Contained([&] {
    work();
    return Status();
  }).ok();
}

// The step is lost on this rank. Tells the others, so that they need not wait for a record that won't come; if even
// that fails, they wait until their bound.
void FailStep(const StageContext& context, const JobRef& job, Status why) noexcept;

// How many threads of the pool may copy or checksum at a time: that takes cores from the training. All of them may wait
// for a disk. After each of its writes a thread waits for a core, which on busy cores takes longer than the write did:
// the disk has something to do only if there are others under way.
size_t Copiers(const Options& options);

// Calls work for each extent in [0, n) on the pool, at most `width` at a time; the first error ends it. kClosed if the
// engine is stopping.
Status ForEachExtent(const StageContext& context, size_t n, size_t width, bool urgent,
                     const std::function<Status(size_t worker, size_t i)>& work);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_STAGE_H_
