// Measures how fast a store takes the bytes of checkpoints, past the page cache and through it.
#ifndef DEEPFREEZE_STORE_PROBE_H_
#define DEEPFREEZE_STORE_PROBE_H_

#include <string>

#include "base/env.h"

namespace deepfreeze {

struct Rates {
  double direct = 0;  // bytes per second, made durable; 0: the file system takes no direct writes
  double cached = 0;
};

// Writes at most `bytes` bytes to a file in `directory` that has no name any more by then, so that nothing is left of
// it, whatever happens: both ways in turn, first a chunk each and then more, with so many threads and in chunks of
// chunk_bytes. Begins no chunk when budget_ms are over, and no round that would take longer if it is as slow as the one
// before; a call to the system that has begun takes as long as it takes. REQUIRES: bytes and chunk_bytes are multiples
// of kDirectUnit, bytes >= 6 * chunk_bytes; directory is not memory. RETURNS the first error; *rates is not set then.
Status ProbeStore(Env* env, const std::string& directory, uint32_t threads, uint64_t bytes, uint64_t chunk_bytes,
                  uint64_t budget_ms, Rates* rates);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_PROBE_H_
