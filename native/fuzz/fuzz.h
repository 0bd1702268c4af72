// What each fuzz target defines; entry.cc hands it to libFuzzer, replay.cc calls it for given files without a fuzzer.
#ifndef DEEPFREEZE_FUZZ_FUZZ_H_
#define DEEPFREEZE_FUZZ_FUZZ_H_

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "format/identity.h"

namespace deepfreeze {

// Reads bytes as the target's format with the real reader; whether they were taken. Aborts if a promise is broken.
bool FuzzOne(const std::string& bytes);

// Makes the checksums right, and with sizes the counts that must agree with the size, wherever there is room for them:
// behind a wrong checksum a mutation would reach nothing.
void Repair(bool sizes, std::string* bytes);

#define FUZZ_CHECK(condition)                                                                 \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      std::fprintf(stderr, "%s:%d: FUZZ_CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                           \
    }                                                                                         \
  } while (0)

// Written out once more, not CheckExtents, which is under test.
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
