// Counters as the C interface shows them.
#ifndef DEEPFREEZE_CAPI_STATS_H_
#define DEEPFREEZE_CAPI_STATS_H_

#include "base/counters.h"
#include "deepfreeze/deepfreeze.h"

namespace deepfreeze {

// Everything but struct_size.
df_stats ToStats(const Counters& from);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_CAPI_STATS_H_
