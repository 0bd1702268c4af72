// Tells others that this rank's bytes move: the callers that wait in this process, and, by a heartbeat if a step takes
// long, the other ranks.
#ifndef DEEPFREEZE_ENGINE_PROGRESS_H_
#define DEEPFREEZE_ENGINE_PROGRESS_H_

#include "base/mutex.h"
#include "engine/job_table.h"
#include "engine/options.h"
#include "store/meeting.h"

namespace deepfreeze {

class Progress {
 public:
  // REQUIRES: all arguments outlive this.
  Progress(const Options& options, Env* env, JobTable* table, Meeting* meeting)
      : options_(options), env_(env), table_(table), meeting_(meeting) {}
  // To be called, from any thread, whenever bytes of the job have reached the external store. May block on the store,
  // so the local writer does not call it.
  void Moved(const JobRef& job);

 private:
  // Shows a heartbeat if the job takes long and the last one is old enough.
  void Beat(Job* job) REQUIRES(mutex_);

  const Options& options_;
  Env* const env_;
  JobTable* const table_;
  Meeting* const meeting_;
  Mutex mutex_;  // held during a beat: there is one at a time
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_PROGRESS_H_
