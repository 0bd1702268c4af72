// The functions that each fuzz target (*_fuzz.cc) defines. entry.cc has libFuzzer call them; replay.cc calls them for
// given files, without a fuzzer.
#ifndef DEEPFREEZE_FUZZ_FUZZ_H_
#define DEEPFREEZE_FUZZ_FUZZ_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "format/identity.h"

namespace deepfreeze {

// Gives bytes to the engine's reader of the target's format. Returns whether the reader accepts them. Aborts if the
// reader breaks a promise.
bool FuzzOne(const std::string& bytes);

// Corrects the checksums in mutated bytes, and with `sizes` also the counts that must agree with the number of bytes,
// as far as the bytes are long enough to have them. A reader refuses bytes with a wrong checksum at once, so without
// this a mutation would test nothing behind it.
void Repair(bool sizes, std::string* bytes);

#define FUZZ_CHECK(condition)                                                                 \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      std::fprintf(stderr, "%s:%d: FUZZ_CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                           \
    }                                                                                         \
  } while (0)

// Aborts unless the extents are sorted, not empty and inside the file. Does not use CheckExtents, which is under test.
inline void CheckSortedInside(const std::vector<Extent>& extents, uint64_t file_size) {
  uint64_t end = 0;
  for (const Extent& extent : extents) {
    FUZZ_CHECK(extent.size > 0 && extent.file_offset >= end && extent.file_offset <= file_size);
    FUZZ_CHECK(extent.size <= file_size - extent.file_offset);
    end = extent.file_offset + extent.size;
  }
}

}  // namespace deepfreeze

#endif  // DEEPFREEZE_FUZZ_FUZZ_H_
