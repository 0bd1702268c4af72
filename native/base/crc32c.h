// CRC32C (Castagnoli, RFC 3720): initial value and final xor 0xFFFFFFFF. Picks the fastest way this processor has,
// once. Thread-safe.
#ifndef DEEPFREEZE_BASE_CRC32C_H_
#define DEEPFREEZE_BASE_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace deepfreeze {

// Of n bytes, continuing from crc (0 to begin).
uint32_t Crc32c(uint32_t crc, const void* data, size_t n);

// The portable way, for processors without instructions and for tests.
uint32_t Crc32cTable(uint32_t crc, const void* data, size_t n);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_CRC32C_H_
