#include "graph/step_marks.h"

#include <string>

namespace deepfreeze {
namespace {

uint64_t Written(const PlaceCounters& place) { return place.direct_bytes.value() + place.cached_bytes.value(); }

}  // namespace

Status StepMarks::Set(uint64_t n) {
  if (n > kMost) {
    return Status(Code::kInvalid, "marks: at most " + std::to_string(kMost) + ", not " + std::to_string(n));
  }
  slots_ = std::make_unique<Slot[]>(n);
  n_ = n;
  return {};
}

void StepMarks::Note(uint64_t number) {
  if (number >= n_) return;
  // The execution of the graph ends before anybody reads the numbers, so they need no order.
  Slot& slot = slots_[number];
  slot.at_us.store(env_->NowMicros(), std::memory_order_relaxed);
  slot.cpu_us.store(env_->CpuMicros(), std::memory_order_relaxed);
  if (const std::shared_ptr<Engine> engine = engine_.lock()) {
    slot.external_bytes.store(Written(engine->counters().external), std::memory_order_relaxed);
    slot.local_bytes.store(Written(engine->counters().local), std::memory_order_relaxed);
    slot.external_us.store(engine->counters().external.writing.Micros(), std::memory_order_relaxed);
    slot.local_us.store(engine->counters().local.writing.Micros(), std::memory_order_relaxed);
  }
}

std::vector<StepMarks::Mark> StepMarks::Take() {
  std::vector<Mark> marks(n_);
  for (uint64_t i = 0; i < n_; ++i) {
    marks[i] = {slots_[i].at_us.exchange(0, std::memory_order_relaxed),
                slots_[i].cpu_us.exchange(0, std::memory_order_relaxed),
                slots_[i].external_bytes.exchange(0, std::memory_order_relaxed),
                slots_[i].local_bytes.exchange(0, std::memory_order_relaxed),
                slots_[i].external_us.exchange(0, std::memory_order_relaxed),
                slots_[i].local_us.exchange(0, std::memory_order_relaxed)};
  }
  return marks;
}

}  // namespace deepfreeze
