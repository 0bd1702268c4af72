// The first stage: writes a job from memory to a slot of the local tier, and computes its checksums. When the local
// tier is full or fails, the engine gives it up for the rest of its life, with one notice, and jobs pass this stage by.
#ifndef DEEPFREEZE_ENGINE_LOCAL_WRITE_H_
#define DEEPFREEZE_ENGINE_LOCAL_WRITE_H_

#include "engine/stage.h"

namespace deepfreeze {

class LocalWriter {
 public:
  explicit LocalWriter(const StageContext& context) : context_(context) {}
  // The thread's body; returns when the table stops.
  void Run();

 private:
  // *whole: whether the job's slot is whole now. False, with an ok status, if the job goes past the local tier.
  Status ToSlot(const JobRef& job, bool* whole);
  Status Write(const JobRef& job, uint32_t slot);
  void GiveUp(const Status& why);

  const StageContext context_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_LOCAL_WRITE_H_
