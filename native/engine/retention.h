// On rank 0: removes the checkpoints that a new one has replaced, and the partial directories of failed steps when the
// store is full. Thread-safe.
#ifndef DEEPFREEZE_ENGINE_RETENTION_H_
#define DEEPFREEZE_ENGINE_RETENTION_H_

#include <mutex>
#include <string>

#include "engine/stage.h"
#include "store/retention.h"

namespace deepfreeze {

class Retention {
 public:
  explicit Retention(const StageContext& context) : context_(context) {}
  // To be called after the commit of a step. Failures are reported as a notice; the next call tries again.
  void Run(int64_t committed);
  // To be called when `step` finds the store full. Removes partial directories of earlier steps that all ranks have
  // given up; returns whether there was one.
  bool MakeRoom(int64_t step);

 private:
  RetainRequest At(int64_t step) const;

  const StageContext context_;
  std::mutex mutex_;
  std::string last_failure_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_RETENTION_H_
