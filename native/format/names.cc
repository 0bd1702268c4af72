#include "format/names.h"

#include <cstdio>
#include <cstdlib>

namespace deepfreeze {
namespace {

constexpr char kPartial[] = ".partial-";
constexpr char kFailed[] = ".failed-";
constexpr char kTrash[] = ".trash-";

std::string Padded(const char* prefix, int digits, long long value, const char* suffix) {
  char text[64];
  std::snprintf(text, sizeof(text), "%s%0*lld%s", prefix, digits, value, suffix);
  return text;
}

bool ParseRanked(const std::string& name, std::string (*make)(uint32_t), uint32_t* rank) {
  if (name.compare(0, 5, "rank-") != 0) return false;
  *rank = static_cast<uint32_t>(std::strtoul(name.c_str() + 5, nullptr, 10));
  return make(*rank) == name;  // refuses signs, blanks, other numbers of digits, and bytes behind the name
}

}  // namespace

std::string Join(const std::string& directory, const std::string& name) { return directory + "/" + name; }
std::string StepName(int64_t step) { return Padded("step-", 10, step, ""); }
std::string PartialName(int64_t step, const Id& attempt) { return StepName(step) + kPartial + Hex(attempt); }
std::string FailedStepName(int64_t step, const Id& attempt) { return StepName(step) + kFailed + Hex(attempt); }
std::string TrashName(int64_t step, const Id& attempt) { return kTrash + StepName(step) + "-" + Hex(attempt); }
std::string RecordName(uint32_t rank) { return Padded("rank-", 5, rank, ".record"); }
std::string NodeRecordName(const NodeRanks& ranks) {
  return Padded("ranks-", 5, ranks.first, "-") + Padded("", 5, ranks.last, "-") + std::to_string(ranks.distance) +
         ".record";
}
std::string FailedName(uint32_t rank) { return Padded("rank-", 5, rank, ".failed"); }
std::string AliveName(uint32_t rank, uint64_t number) {
  return Padded("rank-", 5, rank, "-") + std::to_string(number) + ".alive";
}
std::string SlotName(uint32_t rank, const Id& attempt, uint32_t index) {
  return Padded("rank-", 5, rank, "-") + Hex(attempt) + "-" + std::to_string(index) + ".slot";
}
std::string UserDirName(uint32_t uid) { return "deepfreeze-" + std::to_string(uid); }
std::string NodePageName(uint32_t uid, const Id& attempt, uint32_t lowest) {
  return UserDirName(uid) + "-" + Hex(attempt) + Padded("-", 5, lowest, ".looks");
}

RunEntry ParseRunEntry(const std::string& name) {
  RunEntry entry;
  const size_t digits = name.compare(0, 7, kTrash) == 0 ? 12 : 5;
  if (name.size() <= digits) return entry;
  entry.step = std::strtoll(name.c_str() + digits, nullptr, 10);
  if (name.size() > 32) Unhex(std::string_view(name).substr(name.size() - 32), entry.attempt.data(), 16);
  if (name == StepName(entry.step)) {
    entry.kind = EntryKind::kStep;
  } else if (name == PartialName(entry.step, entry.attempt)) {
    entry.kind = EntryKind::kPartial;
  } else if (name == FailedStepName(entry.step, entry.attempt)) {
    entry.kind = EntryKind::kFailed;
  } else if (name == TrashName(entry.step, entry.attempt)) {
    entry.kind = EntryKind::kTrash;
  }
  if (entry.step < 0) entry.kind = EntryKind::kOther;
  return entry;
}

bool ParseNodeRecordName(const std::string& name, NodeRanks* ranks) {
  unsigned first = 0;
  unsigned last = 0;
  unsigned distance = 0;
  if (std::sscanf(name.c_str(), "ranks-%9u-%9u-%9u", &first, &last, &distance) != 3) return false;
  *ranks = {first, last, distance};
  return distance > 0 && first <= last && (last - first) % distance == 0 && ranks->count() <= kMostOnNode &&
         NodeRecordName(*ranks) == name;
}
bool ParseRecordName(const std::string& name, uint32_t* rank) { return ParseRanked(name, RecordName, rank); }
bool ParseFailedName(const std::string& name, uint32_t* rank) { return ParseRanked(name, FailedName, rank); }

bool ParseAliveName(const std::string& name, uint32_t* rank, uint64_t* number) {
  if (name.compare(0, 5, "rank-") != 0) return false;
  char* end = nullptr;
  *rank = static_cast<uint32_t>(std::strtoul(name.c_str() + 5, &end, 10));
  if (*end != '-') return false;
  *number = std::strtoull(end + 1, nullptr, 10);
  return AliveName(*rank, *number) == name;
}

bool IsLeftover(const std::string& name) {
  uint32_t rank = 0;
  uint64_t number = 0;
  return ParseFailedName(name, &rank) || ParseAliveName(name, &rank, &number) ||
         (name.size() > 4 && name.compare(name.size() - 4, 4, ".tmp") == 0);
}

}  // namespace deepfreeze
