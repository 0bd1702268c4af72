#include "base/token_bucket.h"

#include <algorithm>

namespace deepfreeze {
namespace {

constexpr uint64_t kSecond = 1000000;

}  // namespace

uint64_t TokenBucket::Take(uint64_t n, uint64_t now_us) {
  // Times are counted from a second before the present, so that they are not below 0.
  const uint64_t now = now_us + kSecond;
  paid_us_ = begun_ ? std::max(paid_us_, now - kSecond) : now - kSecond;
  begun_ = true;
  paid_us_ += (n * kSecond + rate_ - 1) / rate_;
  return paid_us_ > now ? paid_us_ - now : 0;
}

}  // namespace deepfreeze
