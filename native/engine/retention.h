// Last stage, on rank 0 and only after a commit: removes what the new checkpoint has replaced.
#ifndef DEEPFREEZE_ENGINE_RETENTION_H_
#define DEEPFREEZE_ENGINE_RETENTION_H_

#include <string>

#include "engine/stage.h"

namespace deepfreeze {

class Retention {
 public:
  explicit Retention(const StageContext& context) : context_(context) {}
  // A failure harms no checkpoint: it becomes a notice, and the next call tries again.
  void Run(int64_t committed);

 private:
  const StageContext context_;
  std::string last_failure_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_RETENTION_H_
