// Repeats work that failed because the store is away for a moment: its server restarts or hands over, and the same work
// succeeds a little later.
#ifndef DEEPFREEZE_ENGINE_PATIENCE_H_
#define DEEPFREEZE_ENGINE_PATIENCE_H_

#include "engine/stage.h"

namespace deepfreeze {

// The repetitions of one piece of work for one job. Used by one thread.
class Patience {
 public:
  Patience(const StageContext& context, const JobRef& job) : context_(context), job_(job) {}

  // To be called with the status of each try. RETURNS whether to make another one; the pause before it, longer each
  // time, is over then. False if the try has succeeded, or failed with an error that does not pass, or the first
  // failure is commit_timeout_ms ago, or the engine is stopping.
  bool Again(const Status& status) noexcept;

 private:
  std::string Where() const;
  std::string Waited() const;  // since the first failure

  const StageContext& context_;
  const JobRef& job_;
  bool failed_ = false;
  uint64_t since_us_ = 0;  // the first failure
  uint64_t pause_ms_ = 0;
};

// Calls `work`, which returns a Status, until Patience says no. REQUIRES: work can be repeated from its beginning.
// RETURNS the last status; kClosed if the engine is stopping, and the work is not done.
template <typename Work>
Status Patiently(const StageContext& context, const JobRef& job, const Work& work) noexcept {
  Patience patience(context, job);
  Status status = Contained(work);
  while (patience.Again(status)) status = Contained(work);
  if (!status.transient() || !context.table->stopping()) return status;
  return Status(Code::kClosed, "closing");  // short enough to need no memory
}

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_PATIENCE_H_
