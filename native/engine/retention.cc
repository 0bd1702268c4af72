#include "engine/retention.h"

namespace deepfreeze {

RetainRequest Retention::At(int64_t step) const {
  const Options& options = context_.options;
  const uint32_t backlog = options.in_flight + options.slots;
  return RetainRequest{options.run_dir, step, options.identity.attempt, options.identity.world, options.keep, backlog};
}

void Retention::Run(int64_t committed) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Status status = Contained([&] { return Retain(context_.env, At(committed)); });
  // The user is told once for each cause, and not after each checkpoint.
  if (!status.ok() && status.message() != last_failure_) {
    context_.table->Notify(context_.options.run_dir + ": older checkpoints could not be removed (" + status.message() +
                           ")");
  }
  last_failure_ = status.message();
}

bool Retention::MakeRoom(int64_t step) {
  std::lock_guard<std::mutex> lock(mutex_);
  bool removed = false;
  return Contained([&] { return RemoveFailed(context_.env, At(step), &removed); }).ok() && removed;
}

}  // namespace deepfreeze
