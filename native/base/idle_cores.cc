#include "base/idle_cores.h"

#include <algorithm>

namespace deepfreeze {

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
