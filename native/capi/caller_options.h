// df_options of a caller of any version, as this version's Options.
#ifndef DEEPFREEZE_CAPI_CALLER_OPTIONS_H_
#define DEEPFREEZE_CAPI_CALLER_OPTIONS_H_

#include "base/env.h"
#include "deepfreeze/deepfreeze.h"
#include "engine/options.h"

namespace deepfreeze {

// Gives what the caller's struct does not have its default, and checks all values. RETURNS kInvalid if an option is
// wrong or not known here, or a directory does not exist.
Status ReadOptions(const df_options* given, Env* env, Options* options);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_CAPI_CALLER_OPTIONS_H_
