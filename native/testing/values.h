// Named values as docs/format.md says, not made by the code under test.
#ifndef DEEPFREEZE_TESTING_VALUES_H_
#define DEEPFREEZE_TESTING_VALUES_H_

#include <string>

#include "base/crc32c.h"

namespace deepfreeze {

inline std::string Little(uint64_t v, size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i, v >>= 8) text.push_back(static_cast<char>(v));
  return text;
}

// One value of a section.
inline std::string Value(const std::string& name, const std::string& bytes) {
  return Little(Crc32cTable(0, bytes.data(), bytes.size()), 4) + Little(name.size(), 4) + Little(bytes.size(), 8) +
         name + bytes;
}

// A section with names that this version does not know.
inline std::string UnknownValues() { return Value("from_the_future", "anything") + Value("position", ""); }

}  // namespace deepfreeze

#endif  // DEEPFREEZE_TESTING_VALUES_H_
