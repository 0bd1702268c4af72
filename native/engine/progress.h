// Tells others that this rank's bytes move: the callers that wait in this process, and, by a heartbeat in the partial
// directory if a step takes long, the other ranks.
#ifndef DEEPFREEZE_ENGINE_PROGRESS_H_
#define DEEPFREEZE_ENGINE_PROGRESS_H_

#include <mutex>

#include "engine/job_table.h"
#include "engine/options.h"

namespace deepfreeze {

class Progress {
 public:
  // All arguments must outlive this.
  Progress(const Options& options, Env* env, JobTable* table) : options_(options), env_(env), table_(table) {}
  // To be called, from any thread, whenever bytes of the job have reached the external store. May block on the store,
  // so the local writer does not call it.
  void Moved(const JobRef& job);

 private:
  const Options& options_;
  Env* const env_;
  JobTable* const table_;
  std::mutex mutex_;  // held during a beat: there is one at a time
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_PROGRESS_H_
