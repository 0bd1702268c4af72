#include "store/meeting.h"

#include <cctype>

namespace deepfreeze {
namespace {

constexpr char kSupersededBy[] = "superseded by step ";
constexpr size_t kMostDigits = 18;  // fit into 64 bits

}  // namespace

std::string SupersededText(int64_t by) { return kSupersededBy + std::to_string(by); }

bool ParseSuperseded(const std::string& text, int64_t* by) {
  const size_t begin = sizeof(kSupersededBy) - 1;
  if (text.compare(0, begin, kSupersededBy) != 0) return false;
  size_t end = begin;
  while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
  if (end == begin || end - begin > kMostDigits || end != text.size()) return false;
  *by = std::stoll(text.substr(begin));
  return true;
}

}  // namespace deepfreeze
