// The third stage: makes the bytes durable that the transfer has written, then writes the rank's record. It has a
// thread of its own, so that the transfer can write the next checkpoint's bytes meanwhile.
#ifndef DEEPFREEZE_ENGINE_PUBLISH_H_
#define DEEPFREEZE_ENGINE_PUBLISH_H_

#include "engine/retention.h"
#include "engine/stage.h"

namespace deepfreeze {

class Publisher {
 public:
  // retention must outlive this.
  Publisher(const StageContext& context, Retention* retention) : context_(context), retention_(retention) {}
  // The thread's body; returns when the table stops.
  void Run();

 private:
  // *perhaps: whether other ranks may see the record; after an error too.
  Status PublishRecord(const JobRef& job, bool* perhaps);

  const StageContext context_;
  Retention* const retention_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_PUBLISH_H_
