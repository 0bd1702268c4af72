// On rank 0: removes what a new checkpoint has replaced, and what failed steps hold of a full store. Thread-safe.
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
  // A failure harms no checkpoint: it becomes a notice, and the next call tries again.
  void Run(int64_t committed);
  // Whether steps below this one gave room back.
  bool MakeRoom(int64_t step);

 private:
  RetainRequest At(int64_t step) const;

  const StageContext context_;
  std::mutex mutex_;
  std::string last_failure_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_RETENTION_H_
