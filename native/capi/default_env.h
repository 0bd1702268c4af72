// The Env that the C interface works on. default_env.cc defines it for the library (Env::Posix), and
// testing/fault_default_env.cc for the testing library (an Env whose calls tests can make fail).
#ifndef DEEPFREEZE_CAPI_DEFAULT_ENV_H_
#define DEEPFREEZE_CAPI_DEFAULT_ENV_H_

#include "base/env.h"

namespace deepfreeze {

// Never destroyed.
Env* DefaultEnv();

}  // namespace deepfreeze

#endif  // DEEPFREEZE_CAPI_DEFAULT_ENV_H_
