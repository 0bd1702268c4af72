#include "capi/default_env.h"

namespace deepfreeze {

Env* DefaultEnv() { return Env::Posix(); }

}  // namespace deepfreeze
