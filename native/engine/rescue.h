// What a dead attempt left on a local tier, brought to the external store.
#ifndef DEEPFREEZE_ENGINE_RESCUE_H_
#define DEEPFREEZE_ENGINE_RESCUE_H_

#include <string>

#include "base/env.h"

namespace deepfreeze {

// See df_slot_transfer.
Status RescueSlot(Env* env, const std::string& path, const std::string& run_dir);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_RESCUE_H_
