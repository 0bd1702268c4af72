// Who owns each of a number of places for checkpoints: slots of the local tier, or buffers of capture memory. The pool
// gives places out and takes them back; it does no I/O and touches no memory.
#ifndef DEEPFREEZE_ENGINE_SLOT_POOL_H_
#define DEEPFREEZE_ENGINE_SLOT_POOL_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deepfreeze {

enum class SlotState : uint8_t {
  kFree,
  kReserved,  // for a capture to come, or for a copy that is being made
  kCaptured,  // holds the only copy of a checkpoint, without checksums: not whole. Of a buffer: the next capture may
              // have parts of it already, and has the whole (kReserved) when the checkpoint has left it
  kSending,   // whole; its checkpoint is on its way to the external store
  kSealed,    // whole; its checkpoint has failed, so only the next start of the job may want it
};

struct SlotTransition {
  SlotState from;
  SlotState to;
};

inline constexpr SlotTransition kSlotTransitions[] = {
    {SlotState::kFree, SlotState::kReserved},    {SlotState::kReserved, SlotState::kCaptured},
    {SlotState::kReserved, SlotState::kSending}, {SlotState::kReserved, SlotState::kSealed},
    {SlotState::kReserved, SlotState::kFree},    {SlotState::kCaptured, SlotState::kReserved},
    {SlotState::kCaptured, SlotState::kSending}, {SlotState::kCaptured, SlotState::kSealed},
    {SlotState::kCaptured, SlotState::kFree},    {SlotState::kSending, SlotState::kSealed},
    {SlotState::kSending, SlotState::kFree},     {SlotState::kSealed, SlotState::kFree},
    {SlotState::kSealed, SlotState::kReserved},
};

// Thread-compatible.
class SlotPool {
 public:
  static constexpr int kNoSlot = -1;
  static constexpr int64_t kNoStep = -1;

  explicit SlotPool(size_t slots) : slots_(slots) {}

  size_t size() const { return slots_.size(); }
  SlotState state(int slot) const { return slots_[static_cast<size_t>(slot)].state; }
  // Whose it is; kNoStep if it is free, or reserved for a capture to come.
  int64_t step(int slot) const { return slots_[static_cast<size_t>(slot)].step; }
  // How many can be reserved now.
  uint32_t Room() const;

  // Takes a slot for a step (kNoStep: for a capture to come): a free one, else the sealed one of the oldest step. It is
  // kReserved then. RETURNS its number, or kNoSlot. *lost: the step whose sealed slot it was, or kNoStep.
  int Take(int64_t step, int64_t* lost);
  // Whether a slot may get free for a copy of `step`. The local level takes steps in their order, and a later step may
  // need its checksums from there before it is over. So a slot of a later step is not waited for, nor is one that waits
  // for its capture.
  bool MayGetFree(int64_t step) const;
  // Gives slot number `slot`, which is not free, another state. RETURNS false, and does nothing, if kSlotTransitions
  // has no such change.
  [[nodiscard]] bool Move(int slot, SlotState to, int64_t step);
  // Frees sealed slots of steps up to this one.
  void FreeSealed(int64_t step);
  // The slots that hold nothing to be kept. ended: no capture and no copy is under way any more.
  std::vector<uint32_t> Idle(bool ended) const;

 private:
  struct Slot {
    SlotState state = SlotState::kFree;
    int64_t step = kNoStep;
  };
  std::vector<Slot> slots_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_SLOT_POOL_H_
