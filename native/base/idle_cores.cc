#include "base/idle_cores.h"

#include <algorithm>

namespace deepfreeze {

double CoresOfEach(const CoreCount& cores, size_t processes) {
  // Sets of `bound` cores overlap if they are more than the machine has in all.
  const double part = static_cast<double>(cores.online) / static_cast<double>(std::max<size_t>(processes, 1));
  return std::min(static_cast<double>(cores.bound), part);
}

double IdleCores::Average(uint64_t now_us, uint64_t used_us) {
  const MutexLock lock(&mutex_);
  // Threads that call at once have read their clocks in any order.
  if (now_us < since_us_ + kShortestUs || used_us < used_us_) return idle_;
  const double used = static_cast<double>(used_us - used_us_) / static_cast<double>(now_us - since_us_);
  idle_ = std::max(0.0, share_ - used);
  since_us_ = now_us;
  used_us_ = used_us;
  return idle_;
}

}  // namespace deepfreeze
