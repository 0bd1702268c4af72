// CRC32C by carry-less multiplication, 64 bytes per instruction (AVX-512 and VPCLMULQDQ), for crc32c.cc and copy.cc.
#ifndef DEEPFREEZE_BASE_CRC32C_WIDE_H_
#define DEEPFREEZE_BASE_CRC32C_WIDE_H_

#include <cstddef>
#include <cstdint>

namespace deepfreeze {

// Below so many bytes the CRC32C instruction is faster, and the functions below must not be called.
constexpr size_t kWideLeast = 1024;

// Whether this processor has the instructions.
bool HasWideCrc32c();

// The state of the checksum's register after n more bytes; n >= kWideLeast. Only if HasWideCrc32c.
uint32_t ExtendWide(uint32_t state, const uint8_t* data, size_t n);

// The same, and copies the bytes with stores that go past the processor's caches. `to` and n must be multiples of 64.
// Thread-safe, but other threads see the copy only after a fence, which the caller makes.
uint32_t ExtendWideAndCopy(uint32_t state, const uint8_t* data, size_t n, uint8_t* to);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_CRC32C_WIDE_H_
