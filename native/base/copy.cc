#include "base/copy.h"

#include <cstdint>
#include <cstring>

#include "base/crc32c.h"
#include "base/crc32c_wide.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace deepfreeze {
namespace {

// Bytes. A smaller destination is likely to be read while it is still in a cache, so it is written through the caches.
constexpr size_t kWorthwhile = size_t{256} << 10;
constexpr size_t kLine = 64;

// The bytes from `to` to the beginning of a cache line.
size_t ToLine(const void* to) { return (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine; }

#if defined(__x86_64__)

__attribute__((target("avx2"))) void Stream(char* to, const char* from, size_t lines) {
  for (size_t i = 0; i < lines; ++i, to += kLine, from += kLine) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + kLine / 2));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), low);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + kLine / 2), high);
  }
  _mm_sfence();  // else a later store, by which another thread learns of the copy, could become visible before it
}

bool HasAvx2() {
  static const bool has = __builtin_cpu_supports("avx2") != 0;
  return has;
}

#endif

}  // namespace

void CopyPastCache(void* to, const void* from, size_t n) {
#if defined(__x86_64__)
  if (n >= kWorthwhile && HasAvx2()) {
    char* target = static_cast<char*>(to);
    const char* source = static_cast<const char*>(from);
    const size_t head = ToLine(target);
    std::memcpy(target, source, head);
    const size_t lines = (n - head) / kLine;
    Stream(target + head, source + head, lines);
    const size_t done = head + lines * kLine;
    std::memcpy(target + done, source + done, n - done);
    return;
  }
#endif
  std::memcpy(to, from, n);
}

bool HasOnePass() { return HasWideCrc32c(); }

uint32_t CopyAndChecksum(uint32_t crc, void* to, const void* from, size_t n) {
  auto* target = static_cast<uint8_t*>(to);
  const auto* source = static_cast<const uint8_t*>(from);
#if defined(__x86_64__)
  if (n >= kWorthwhile && HasWideCrc32c()) {
    const size_t head = ToLine(target);
    const size_t lines = (n - head) / kLine * kLine;
    const size_t done = head + lines;
    std::memcpy(target, source, head);
    crc = Crc32c(crc, source, head);
    crc = ~ExtendWideAndCopy(~crc, source + head, lines, target + head);
    _mm_sfence();  // as in Stream
    std::memcpy(target + done, source + done, n - done);
    return Crc32c(crc, source + done, n - done);
  }
#endif
  crc = Crc32c(crc, source, n);
  CopyPastCache(target, source, n);
  return crc;
}

}  // namespace deepfreeze
