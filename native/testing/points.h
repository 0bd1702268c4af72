// Which points of a sweep a test tries: every DEEPFREEZE_TEST_EVERY-th, beginning with number DEEPFREEZE_TEST_FIRST.
// Without these environment variables: all.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace deepfreeze {

struct Points {
  uint64_t every = Number("DEEPFREEZE_TEST_EVERY", 1);
  uint64_t first = Number("DEEPFREEZE_TEST_FIRST", 0);

  bool All() const { return every == 1; }
  // A sweep of `all` points or more tries at least so many of them.
  uint64_t AtLeast(uint64_t all) const { return all / every; }

 private:
  static uint64_t Number(const char* variable, uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
  }
};

}  // namespace deepfreeze
