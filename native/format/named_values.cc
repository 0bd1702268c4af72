#include "format/named_values.h"

#include <algorithm>

#include "base/coding.h"
#include "base/crc32c.h"
#include "format/identity.h"

namespace deepfreeze {
namespace {

constexpr size_t kHead = 16;  // bytes before the name
constexpr size_t kLongestName = 64;

struct Value {
  std::string_view name;
  std::string_view bytes;
  uint32_t crc = 0;
};

// Takes the first value from the front of *rest. False if its sizes do not fit into *rest.
bool Take(std::string_view* rest, Value* value) {
  if (rest->size() < kHead) return false;
  const char* const head = rest->data();
  value->crc = Get32(head);
  const uint32_t name = Get32(head + 4);
  const uint64_t bytes = Get64(head + 8);
  rest->remove_prefix(kHead);
  if (name > rest->size() || bytes > rest->size() - name) return false;
  value->name = rest->substr(0, name);
  value->bytes = rest->substr(name, bytes);
  rest->remove_prefix(name + bytes);
  return true;
}

bool IsName(std::string_view name) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !name.empty() && name.size() <= kLongestName && std::all_of(name.begin(), name.end(), allowed);
}

}  // namespace

Status CheckNamedValues(std::string_view section, const std::string& where) {
  std::string_view rest = section;
  std::string_view before;
  while (!rest.empty()) {
    Value value;
    if (!Take(&rest, &value) || !IsName(value.name) || value.name <= before) {
      return Malformed(where, "named values in ascending order, inside of their section",
                       "others, in " + std::to_string(section.size()) + " bytes");
    }
    const uint32_t crc = Crc32c(0, value.bytes.data(), value.bytes.size());
    if (crc != value.crc) {
      return Malformed(where, "checksum " + Hex32(value.crc) + " of the value " + std::string(value.name), Hex32(crc));
    }
    before = value.name;
  }
  return {};
}

bool FindNamedValue(std::string_view section, std::string_view name, std::string_view* value) {
  Value one;
  for (std::string_view rest = section; Take(&rest, &one);) {
    if (one.name != name) continue;
    *value = one.bytes;
    return true;
  }
  return false;
}

}  // namespace deepfreeze
