// The stage kPublish: makes the bytes durable that the transfer has written, then writes the rank's record. It has
// threads of its own, so that the transfer can write the next checkpoint's bytes meanwhile.
#ifndef DEEPFREEZE_ENGINE_PUBLISH_H_
#define DEEPFREEZE_ENGINE_PUBLISH_H_

#include "engine/remover.h"
#include "engine/stage.h"

namespace deepfreeze {

class Publisher {
 public:
  // REQUIRES: remover outlives this.
  Publisher(const StageContext& context, Remover* remover) : context_(context), remover_(remover) {}
  // RETURNS as Level::Protect. The other ranks know of a failure by then.
  Status Publish(const JobRef& job);

 private:
  // RETURNS ok also if an error has left open, on another rank than 0, whether rank 0 sees the record: that rank does
  // not know whether the step fails, and waits for rank 0's verdict.
  Status PublishRecord(const JobRef& job);

  const StageContext context_;
  Remover* const remover_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_PUBLISH_H_
