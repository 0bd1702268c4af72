#include "engine/retention.h"

#include "store/retention.h"

namespace deepfreeze {

void Retention::Run(int64_t committed) {
  const Options& options = context_.options;
  const Status status = Retain(context_.env, options.run_dir, committed, options.identity.attempt, options.keep);
  // Once per cause, not once per checkpoint.
  if (!status.ok() && status.message() != last_failure_) {
    context_.table->Notify(options.run_dir + ": older checkpoints could not be removed (" + status.message() + ")");
  }
  last_failure_ = status.message();
}

}  // namespace deepfreeze
