#include "base/copy.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "testing/check.h"

namespace deepfreeze {
namespace {

// Tries the sizes and alignments around those at which the copy changes from one method to the other.
void EveryByteArrivesAndNoOther() {
  const size_t big = size_t{256} << 10;
  std::string from(big + 4096, '\0');
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 131 + i / 251);
  for (const size_t n : {size_t{0}, size_t{1}, size_t{63}, big - 1, big, big + 1, big + 63, big + 64, big + 777}) {
    for (const size_t source : {0, 1, 63}) {
      for (const size_t target : {0, 1, 32, 63}) {
        std::string to(n + 256, '#');
        std::string expected = to;
        std::memcpy(&expected[target], &from[source], n);
        CopyPastCache(&to[target], &from[source], n);
        CHECK(to == expected);
        std::fill(to.begin(), to.end(), '#');
        CHECK_EQ(CopyAndChecksum(7, &to[target], &from[source], n), Crc32cTable(7, &from[source], n));
        CHECK(to == expected);
      }
    }
  }
}

}  // namespace
}  // namespace deepfreeze

int main() { deepfreeze::EveryByteArrivesAndNoOther(); }
