// Integers as little-endian bytes and bytes as lower-case hexadecimal text, the same on every machine.
#ifndef DEEPFREEZE_BASE_CODING_H_
#define DEEPFREEZE_BASE_CODING_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace deepfreeze {

using Id = std::array<uint8_t, 16>;      // run ids and attempt ids
using Digest = std::array<uint8_t, 32>;  // SHA-256

// Put32 and Put64 write 4 and 8 bytes, Get32 and Get64 read as many; the memory need not be aligned.
inline void Put32(char* to, uint32_t v) {
  for (int i = 0; i < 4; ++i) to[i] = static_cast<char>(v >> (8 * i));
}
inline void Put64(char* to, uint64_t v) {
  for (int i = 0; i < 8; ++i) to[i] = static_cast<char>(v >> (8 * i));
}
inline uint32_t Get32(const char* from) {
  uint32_t v = 0;
  for (int i = 0; i < 4; ++i) v |= static_cast<uint32_t>(static_cast<uint8_t>(from[i])) << (8 * i);
  return v;
}
inline uint64_t Get64(const char* from) {
  uint64_t v = 0;
  for (int i = 0; i < 8; ++i) v |= static_cast<uint64_t>(static_cast<uint8_t>(from[i])) << (8 * i);
  return v;
}
// The least multiple of align, a power of two, that is not below v. v + align must not overflow.
inline uint64_t RoundUp(uint64_t v, uint64_t align) { return (v + align - 1) & ~(align - 1); }

std::string Hex(const uint8_t* bytes, size_t n);  // two lower-case digits for each byte
std::string Hex32(uint32_t v);                    // eight digits, most significant first
// Reads n bytes. False, and bytes are undefined, unless text is exactly 2n lower-case hexadecimal digits.
bool Unhex(std::string_view text, uint8_t* bytes, size_t n);

template <size_t N>
std::string Hex(const std::array<uint8_t, N>& bytes) {
  return Hex(bytes.data(), N);
}

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_CODING_H_
