#include "base/crc32c_wide.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>
#endif

namespace deepfreeze {

#if defined(__x86_64__)

namespace {

#if defined(__clang__)  // which counts the instruction as a feature of its own
#define DF_WIDE __attribute__((target("avx512f,vpclmulqdq,sse4.2,crc32")))
#else
#define DF_WIDE __attribute__((target("avx512f,vpclmulqdq,sse4.2")))
#endif

constexpr size_t kLane = 64;
// One multiplication takes several cycles, and one can start in each, so four lanes are folded at once.
constexpr size_t kLanes = 4;
constexpr size_t kBlock = kLane * kLanes;
// The processor's own prefetch ends at each page of 4 KiB.
constexpr size_t kAhead = 4096;

// x^n modulo the polynomial, reflected, as the second factor of a carry-less multiplication of reflected numbers.
constexpr uint64_t PowerOfX(unsigned n) {
  uint32_t power = 0x80000000;
  for (; n > 0; --n) power = (power >> 1) ^ ((power & 1) != 0 ? 0x82F63B78 : 0);
  return uint64_t{power} << 1;
}

// Moves a lane on by kBlock bytes, which multiplies it by a power of x, and adds the bytes that are there.
DF_WIDE inline __m512i Fold(__m512i lane, __m512i factors, __m512i bytes) {
  const __m512i low = _mm512_clmulepi64_epi128(lane, factors, 0x00);
  const __m512i high = _mm512_clmulepi64_epi128(lane, factors, 0x11);
  return _mm512_ternarylogic_epi64(low, high, bytes, 0x96);  // exclusive or of the three
}

DF_WIDE uint32_t ExtendByInstruction(uint32_t state, const uint8_t* data, size_t n) {
  for (; n >= 8; data += 8, n -= 8) {
    uint64_t word = 0;
    std::memcpy(&word, data, sizeof(word));
    state = static_cast<uint32_t>(_mm_crc32_u64(state, word));
  }
  for (; n > 0; ++data, --n) state = _mm_crc32_u8(state, *data);
  return state;
}

template <bool kCopy>
DF_WIDE uint32_t Extend(uint32_t state, const uint8_t* data, size_t n, uint8_t* to) {
  constexpr auto kLow = static_cast<int64_t>(PowerOfX(kBlock * 8 + 32));
  constexpr auto kHigh = static_cast<int64_t>(PowerOfX(kBlock * 8 - 32));
  const __m512i factors = _mm512_set_epi64(kHigh, kLow, kHigh, kLow, kHigh, kLow, kHigh, kLow);
  __m512i lanes[kLanes];
  for (size_t i = 0; i < kLanes; ++i) {
    lanes[i] = _mm512_loadu_si512(data + i * kLane);
    if (kCopy) _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i * kLane), lanes[i]);
  }
  lanes[0] = _mm512_xor_si512(lanes[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(state))));
  for (data += kBlock, n -= kBlock; n >= kBlock; data += kBlock, n -= kBlock) {
    if (kCopy) to += kBlock;
    for (size_t i = 0; i < kLanes; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(data + i * kLane + kAhead), _MM_HINT_T0);
      const __m512i bytes = _mm512_loadu_si512(data + i * kLane);
      if (kCopy) _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i * kLane), bytes);
      lanes[i] = Fold(lanes[i], factors, bytes);
    }
  }
  if (kCopy) {
    to += kBlock;
    for (size_t at = 0; at < n; at += kLane) {
      _mm512_stream_si512(reinterpret_cast<__m512i*>(to + at), _mm512_loadu_si512(data + at));
    }
  }
  // The lanes are now bytes that have the same remainder as all bytes so far.
  uint8_t block[kBlock];
  for (size_t i = 0; i < kLanes; ++i) _mm512_storeu_si512(block + i * kLane, lanes[i]);
  return ExtendByInstruction(ExtendByInstruction(0, block, kBlock), data, n);
}

}  // namespace

bool HasWideCrc32c() {
  static const bool has = __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("vpclmulqdq") != 0 &&
                          __builtin_cpu_supports("sse4.2") != 0;
  return has;
}

uint32_t ExtendWide(uint32_t state, const uint8_t* data, size_t n) { return Extend<false>(state, data, n, nullptr); }

uint32_t ExtendWideAndCopy(uint32_t state, const uint8_t* data, size_t n, uint8_t* to) {
  return Extend<true>(state, data, n, to);
}

#else

bool HasWideCrc32c() { return false; }
uint32_t ExtendWide(uint32_t state, const uint8_t*, size_t) { return state; }
uint32_t ExtendWideAndCopy(uint32_t state, const uint8_t*, size_t, uint8_t*) { return state; }

#endif

}  // namespace deepfreeze
