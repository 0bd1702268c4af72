// Copies the slots of a dead attempt from a local tier to the external store, for the next start of its job.
#ifndef DEEPFREEZE_ENGINE_RESCUE_H_
#define DEEPFREEZE_ENGINE_RESCUE_H_

#include <string>

#include "base/env.h"
#include "store/store.h"

namespace deepfreeze {

// See df_slot_transfer. path: of the slot. Blocks on both tiers.
Status RescueSlot(Env* env, const std::string& path, Store* store);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_RESCUE_H_
