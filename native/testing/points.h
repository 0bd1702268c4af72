// Which points of a sweep are tried: all of them, or every DEEPFREEZE_TEST_EVERY-th from number DEEPFREEZE_TEST_FIRST
// on.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace deepfreeze {

struct Points {
  uint64_t every = Number("DEEPFREEZE_TEST_EVERY", 1);
  uint64_t first = Number("DEEPFREEZE_TEST_FIRST", 0);

  bool All() const { return every == 1; }
  // Of a sweep with more than so many points at least so many are tried.
  uint64_t AtLeast(uint64_t all) const { return all / every; }

 private:
  static uint64_t Number(const char* variable, uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
  }
};

}  // namespace deepfreeze
