// With a store that is away for a moment: its server restarts or hands over, and what failed goes well a little later.
#ifndef DEEPFREEZE_ENGINE_PATIENCE_H_
#define DEEPFREEZE_ENGINE_PATIENCE_H_

#include "engine/stage.h"

namespace deepfreeze {

// Of one piece of work for one job. Used by one thread.
class Patience {
 public:
  Patience(const StageContext& context, const JobRef& job) : context_(context), job_(job) {}

  // What became of one try. True: make another one; a pause, longer each time, is over. False: it went well, or failed
  // in a way that does not pass, or the first failure is as long ago as a checkpoint may wait for another rank, or
  // the engine is stopping.
  bool Again(const Status& status) noexcept;

 private:
  const StageContext& context_;
  const JobRef& job_;
  bool failed_ = false;
  uint64_t since_us_ = 0;  // the first failure
  uint64_t pause_ms_ = 0;
};

// Work that may be repeated from its beginning. kClosed: the engine is stopping, and the work not done.
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
