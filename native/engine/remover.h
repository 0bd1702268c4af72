// Retention, on rank 0: removes the checkpoints that the caller no longer keeps, and what failed steps have left. It
// has a thread of its own, because deleting large files takes long and commits must not wait for it.
#ifndef DEEPFREEZE_ENGINE_REMOVER_H_
#define DEEPFREEZE_ENGINE_REMOVER_H_

#include <atomic>
#include <string>

#include "base/mutex.h"
#include "engine/stage.h"

namespace deepfreeze {

class Remover {
 public:
  explicit Remover(const StageContext& context) : context_(context) {}
  // The thread's body: does what the queue has been asked for. Returns when the queue stops and all of that is done.
  // Failures are reported as a notice; partial directories and trash are tried again after the next commit.
  void Run();
  // To be called when `step` finds the store full. Waits for what is being removed, and removes partial directories of
  // earlier steps that all ranks have given up. RETURNS whether there was anything of the kind. Thread-safe.
  bool MakeRoom(int64_t step);
  // From now on no removal is begun: what was asked for is left. Thread-safe.
  void LeaveTheRest() { leaves_ = true; }

 private:
  CleanUpRequest At(int64_t step) const;
  Status Do(const Upkeep& upkeep);

  const StageContext context_;
  Mutex mutex_;  // one call into the store at a time
  std::atomic<bool> leaves_{false};
  std::string last_failure_;
  bool tidied_ = false;  // the work taken last has removed what was left
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_REMOVER_H_
