// First stage: from the caller's memory to a slot of the local tier. When the local tier is full or fails, it is given
// up for the rest of the engine's life, with one notice, and jobs pass through.
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
  // *whole: the job is in a slot now. False where it goes past the local tier.
  Status ToSlot(const JobRef& job, bool* whole);
  Status Write(const JobRef& job, uint32_t slot);
  void GiveUp(const Status& why);

  const StageContext context_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_LOCAL_WRITE_H_
