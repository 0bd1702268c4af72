// The Env behind the C interface. One source file defines it for the library, another for the testing library.
#ifndef DEEPFREEZE_CAPI_DEFAULT_ENV_H_
#define DEEPFREEZE_CAPI_DEFAULT_ENV_H_

#include "base/env.h"

namespace deepfreeze {

// Lives for ever.
Env* DefaultEnv();

}  // namespace deepfreeze

#endif  // DEEPFREEZE_CAPI_DEFAULT_ENV_H_
