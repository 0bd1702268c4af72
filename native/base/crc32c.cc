#include "base/crc32c.h"

#include <array>
#include <cstring>

#include "base/crc32c_wide.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#if defined(__clang__)  // which counts the instruction as a feature of its own
#define DF_CRC_TARGET __attribute__((target("sse4.2,crc32")))
#else
#define DF_CRC_TARGET __attribute__((target("sse4.2")))
#endif
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>
#define DF_CRC_TARGET __attribute__((target("+crc")))
#endif

namespace deepfreeze {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected

using Table = std::array<std::array<uint32_t, 256>, 8>;

// table[k][b]: the state after byte b followed by k zero bytes ("slicing by 8").
const Table& SlicingTable() {
  static const Table table = [] {
    Table t{};
    for (uint32_t b = 0; b < 256; ++b) {
      uint32_t crc = b;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
      t[0][b] = crc;
    }
    for (size_t k = 1; k < 8; ++k) {
      for (size_t b = 0; b < 256; ++b) t[k][b] = (t[k - 1][b] >> 8) ^ t[0][t[k - 1][b] & 255];
    }
    return t;
  }();
  return table;
}

uint32_t ExtendTable(uint32_t state, const uint8_t* p, size_t n) {
  const Table& t = SlicingTable();
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t word = 0;
    for (size_t i = 0; i < 8; ++i) word |= static_cast<uint64_t>(p[i]) << (8 * i);
    word ^= state;
    state = 0;
    for (size_t i = 0; i < 8; ++i) state ^= t[7 - i][(word >> (8 * i)) & 255];
  }
  for (; n > 0; ++p, --n) state = (state >> 8) ^ t[0][(state ^ *p) & 255];
  return state;
}

#ifdef DF_CRC_TARGET

#if defined(__x86_64__)
DF_CRC_TARGET inline uint32_t Step64(uint32_t state, uint64_t word) {
  return static_cast<uint32_t>(_mm_crc32_u64(state, word));
}
DF_CRC_TARGET inline uint32_t Step8(uint32_t state, uint8_t byte) { return _mm_crc32_u8(state, byte); }
bool HasInstruction() { return __builtin_cpu_supports("sse4.2") != 0; }
#else
DF_CRC_TARGET inline uint32_t Step64(uint32_t state, uint64_t word) { return __crc32cd(state, word); }
DF_CRC_TARGET inline uint32_t Step8(uint32_t state, uint8_t byte) { return __crc32cb(state, byte); }
bool HasInstruction() { return (getauxval(AT_HWCAP) & (1 << 7)) != 0; }  // HWCAP_CRC32
#endif

// The instruction takes three cycles, and one can start in each cycle, so three independent streams are computed at
// once. At the end a table advances the state of one stream over the bytes of the next: that is linear in the state's
// 32 bits.
constexpr size_t kStream = 4096;

using ShiftTable = std::array<std::array<uint32_t, 256>, 4>;

const ShiftTable& StreamShift() {
  static const ShiftTable table = [] {
    static const std::array<uint8_t, kStream> kZeros{};
    std::array<uint32_t, 32> image{};
    for (size_t bit = 0; bit < 32; ++bit) image[bit] = ExtendTable(uint32_t{1} << bit, kZeros.data(), kStream);
    ShiftTable t{};
    for (size_t k = 0; k < 4; ++k) {
      for (size_t b = 0; b < 256; ++b) {
        for (size_t bit = 0; bit < 8; ++bit) {
          if ((b >> bit & 1) != 0) t[k][b] ^= image[8 * k + bit];
        }
      }
    }
    return t;
  }();
  return table;
}

uint32_t Shift(const ShiftTable& t, uint32_t state) {
  return t[0][state & 255] ^ t[1][state >> 8 & 255] ^ t[2][state >> 16 & 255] ^ t[3][state >> 24];
}

inline uint64_t Load64(const uint8_t* p) {
  uint64_t word = 0;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

DF_CRC_TARGET uint32_t ExtendInstruction(uint32_t state, const uint8_t* p, size_t n) {
  if (n >= 3 * kStream) {
    const ShiftTable& shift = StreamShift();
    for (; n >= 3 * kStream; p += 3 * kStream, n -= 3 * kStream) {
      uint32_t second = 0;
      uint32_t third = 0;
      for (size_t i = 0; i < kStream; i += 8) {
        state = Step64(state, Load64(p + i));
        second = Step64(second, Load64(p + kStream + i));
        third = Step64(third, Load64(p + 2 * kStream + i));
      }
      state = Shift(shift, Shift(shift, state) ^ second) ^ third;
    }
  }
  for (; n >= 8; p += 8, n -= 8) state = Step64(state, Load64(p));
  for (; n > 0; ++p, --n) state = Step8(state, *p);
  return state;
}

uint32_t ExtendWideOrNot(uint32_t state, const uint8_t* p, size_t n) {
  return n >= kWideLeast ? ExtendWide(state, p, n) : ExtendInstruction(state, p, n);
}

#endif  // DF_CRC_TARGET

using Extend = uint32_t (*)(uint32_t, const uint8_t*, size_t);

Extend Choose() {
#ifdef DF_CRC_TARGET
  if (HasInstruction()) return HasWideCrc32c() ? ExtendWideOrNot : ExtendInstruction;
#endif
  return ExtendTable;
}

}  // namespace

uint32_t Crc32c(uint32_t crc, const void* data, size_t n) {
  static const Extend extend = Choose();
  return ~extend(~crc, static_cast<const uint8_t*>(data), n);
}

uint32_t Crc32cInstruction(uint32_t crc, const void* data, size_t n) {
#ifdef DF_CRC_TARGET
  if (HasInstruction()) return ~ExtendInstruction(~crc, static_cast<const uint8_t*>(data), n);
#endif
  return Crc32cTable(crc, data, n);
}

uint32_t Crc32cTable(uint32_t crc, const void* data, size_t n) {
  return ~ExtendTable(~crc, static_cast<const uint8_t*>(data), n);
}

}  // namespace deepfreeze
