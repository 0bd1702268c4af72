// CRC32C (Castagnoli, RFC 3720): initial value and final xor 0xFFFFFFFF. Uses the fastest instructions that this
// processor has. Thread-safe.
#ifndef DEEPFREEZE_BASE_CRC32C_H_
#define DEEPFREEZE_BASE_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace deepfreeze {

// The checksum of n bytes. crc is the checksum of the bytes before them, 0 if there are none: Crc32c(Crc32c(0, a, 3),
// a + 3, 4) is Crc32c(0, a, 7).
uint32_t Crc32c(uint32_t crc, const void* data, size_t n);

// The same by the instruction for CRC32C that most processors have, without wider ones; for tests and measurements.
uint32_t Crc32cInstruction(uint32_t crc, const void* data, size_t n);

// The same by table look-ups, for processors without CRC32C instructions and for tests.
uint32_t Crc32cTable(uint32_t crc, const void* data, size_t n);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_CRC32C_H_
