#include "base/crc32c.h"

#include <random>
#include <string>

#include "testing/check.h"

namespace deepfreeze {
namespace {

void KnownAnswers() {  // RFC 3720, B.4
  CHECK_EQ(Crc32c(0, "123456789", 9), 0xE3069283u);
  CHECK_EQ(Crc32c(0, std::string(32, '\0').data(), 32), 0x8A9136AAu);
  CHECK_EQ(Crc32c(0, std::string(32, '\xff').data(), 32), 0x62A8AB43u);
  CHECK_EQ(Crc32cTable(0, "123456789", 9), 0xE3069283u);
  CHECK_EQ(Crc32c(0, "", 0), 0u);
}

// All lengths around the three streams' borders, unaligned, whole and in two parts.
void InstructionAgreesWithTable() {
  std::string data(3 * 4096 * 2 + 200, '\0');
  uint32_t x = 1;
  for (char& byte : data) byte = static_cast<char>((x = x * 1664525 + 1013904223) >> 24);
  for (size_t n : {0, 1, 7, 8, 9, 63, 4095, 4096, 12287, 12288, 12289, 12300, 24576, 24577, 24700}) {
    for (size_t at : {0, 1, 3, 8}) {
      const uint32_t want = Crc32cTable(0, data.data() + at, n);
      CHECK_EQ(Crc32c(0, data.data() + at, n), want);
      const size_t part = n / 3;
      CHECK_EQ(Crc32c(Crc32c(0, data.data() + at, part), data.data() + at + part, n - part), want);
    }
  }
}

// Random lengths, addresses and cuts: Crc32c, whichever instructions it uses here, agrees with the slower ways.
void RandomPartsAgree() {
  std::mt19937 random(7);  // NOLINT(bugprone-random-generator-seed): each run tries the same
  std::string data(1 << 17, '\0');
  for (char& byte : data) byte = static_cast<char>(random());
  for (int i = 0; i < 3000; ++i) {
    const size_t n = random() % (i % 10 == 0 ? 100000 : 3000);
    const char* from = data.data() + random() % (data.size() - n);
    const uint32_t before = random();
    const uint32_t want = Crc32cTable(before, from, n);
    CHECK_EQ(Crc32c(before, from, n), want);
    CHECK_EQ(Crc32cInstruction(before, from, n), want);
    const size_t part = n == 0 ? 0 : random() % n;
    CHECK_EQ(Crc32c(Crc32c(before, from, part), from + part, n - part), want);
  }
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::KnownAnswers();
  deepfreeze::InstructionAgreesWithTable();
  deepfreeze::RandomPartsAgree();
}
