#include "engine/slot_pool.h"

#include <algorithm>
#include <iterator>

namespace deepfreeze {

uint32_t SlotPool::Room() const {
  return static_cast<uint32_t>(std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) {
    return slot.state == SlotState::kFree || slot.state == SlotState::kSealed;
  }));
}

int SlotPool::Take(int64_t step, int64_t* lost) {
  *lost = kNoStep;
  Slot* found = nullptr;
  for (Slot& slot : slots_) {
    if (slot.state == SlotState::kFree) {
      found = &slot;
      break;
    }
    if (slot.state == SlotState::kSealed && (found == nullptr || slot.step < found->step)) found = &slot;
  }
  if (found == nullptr) return kNoSlot;
  if (found->state == SlotState::kSealed) *lost = found->step;
  const int number = static_cast<int>(found - slots_.data());
  return Move(number, SlotState::kReserved, step) ? number : kNoSlot;
}

bool SlotPool::MayGetFree(int64_t step) const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const Slot& slot) {
    const bool taken = slot.state != SlotState::kFree && slot.state != SlotState::kSealed;
    return !taken || (slot.step != kNoStep && slot.step < step);
  });
}

bool SlotPool::Move(int slot, SlotState to, int64_t step) {
  Slot* one = &slots_[static_cast<size_t>(slot)];
  const bool known = std::any_of(std::begin(kSlotTransitions), std::end(kSlotTransitions),
                                 [&](const SlotTransition& row) { return row.from == one->state && row.to == to; });
  if (known) *one = Slot{to, to == SlotState::kFree ? kNoStep : step};
  return known;
}

void SlotPool::FreeSealed(int64_t step) {
  for (Slot& slot : slots_) {
    if (slot.state == SlotState::kSealed && slot.step <= step) slot = Slot();
  }
}

std::vector<uint32_t> SlotPool::Idle(bool ended) const {
  std::vector<uint32_t> idle;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    const bool kept = slot.state == SlotState::kSending || slot.state == SlotState::kSealed;
    const bool copy = slot.state == SlotState::kReserved && slot.step != kNoStep;
    if (slot.state == SlotState::kFree || copy || (ended && !kept)) idle.push_back(static_cast<uint32_t>(i));
  }
  return idle;
}

}  // namespace deepfreeze
