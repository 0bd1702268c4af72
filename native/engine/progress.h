// That a rank's bytes move: told to who waits in this process, and, where a step takes long, to the other ranks.
#ifndef DEEPFREEZE_ENGINE_PROGRESS_H_
#define DEEPFREEZE_ENGINE_PROGRESS_H_

#include <mutex>

#include "engine/job_table.h"
#include "engine/options.h"

namespace deepfreeze {

class Progress {
 public:
  // All outlive this.
  Progress(const Options& options, Env* env, JobTable* table) : options_(options), env_(env), table_(table) {}
  // Bytes of the job came to the external store. Any thread. May wait for the store: the local tier must not.
  void Moved(const JobRef& job);

 private:
  const Options& options_;
  Env* const env_;
  JobTable* const table_;
  std::mutex mutex_;  // one beat at a time
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_PROGRESS_H_
