// A cap on bytes per second, with bursts of one second at most. No clock of its own, and no waits.
#ifndef DEEPFREEZE_BASE_TOKEN_BUCKET_H_
#define DEEPFREEZE_BASE_TOKEN_BUCKET_H_

#include <cstdint>

namespace deepfreeze {

// Thread-compatible.
class TokenBucket {
 public:
  // rate: bytes per second, more than 0.
  explicit TokenBucket(uint64_t rate) : rate_(rate) {}

  // For n bytes that are to be written: returns how many microseconds after now_us they may be. The bytes that may be
  // written until any time are at most those of the time since the first call, and of one second more. now_us: the time
  // in microseconds, which never goes back. n: at most 2^40.
  uint64_t Take(uint64_t n, uint64_t now_us);

 private:
  const uint64_t rate_;
  bool begun_ = false;
  uint64_t paid_us_ = 0;  // until when the bytes of former calls take, at the rate
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_TOKEN_BUCKET_H_
