// Third stage: makes durable what the transfer wrote, then the record that says so. A stage of its own, so that the
// disk has the next checkpoint's bytes to write meanwhile.
#ifndef DEEPFREEZE_ENGINE_PUBLISH_H_
#define DEEPFREEZE_ENGINE_PUBLISH_H_

#include "engine/retention.h"
#include "engine/stage.h"

namespace deepfreeze {

class Publisher {
 public:
  // retention outlives this.
  Publisher(const StageContext& context, Retention* retention) : context_(context), retention_(retention) {}
  // The thread's body; returns when the table stops.
  void Run();

 private:
  // *perhaps: whether the record may be visible, also after an error.
  Status PublishRecord(const JobRef& job, bool* perhaps);

  const StageContext context_;
  Retention* const retention_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_PUBLISH_H_
