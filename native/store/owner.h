// RUN/owner: which attempt a run belongs to. A job's start writes it under the run's lock, before it changes anything.
//
// An attempt whose run has been taken, because somebody deleted its lock or the store lost it, learns it from here. The
// lock itself can't be looked at: a process that closes any descriptor of that file gives its lock away.
#ifndef DEEPFREEZE_STORE_OWNER_H_
#define DEEPFREEZE_STORE_OWNER_H_

#include <string>

#include "base/coding.h"
#include "base/env.h"

namespace deepfreeze {

// To be asked before a change of the run that others would see: a commit, a removal. Ok if the run is the attempt's
// own, or if it says of nobody (older versions did not). kTaken if another attempt has it. A look that fails is an
// error and not a consent: a step that fails can be saved again, a checkpoint that was removed can't.
Status CheckOwner(Env* env, const std::string& run_dir, const Id& attempt);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_OWNER_H_
