#include "store/roll.h"

#include <algorithm>

namespace deepfreeze {
namespace {

constexpr size_t kNamedRanks = 16;

}  // namespace

bool Pulse::Moved(const PartialState& state) {
  bool moved = state.present.size() > records_;
  records_ = std::max(records_, state.present.size());
  for (const auto& [rank, number] : state.alive) {
    const bool done = std::binary_search(state.present.begin(), state.present.end(), rank);
    moved = moved || (!done && number > beats_[rank]);
    beats_[rank] = std::max(beats_[rank], number);
  }
  return std::exchange(looked_, true) && moved;
}

std::string NameRanks(const std::vector<uint32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kNamedRanks); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > kNamedRanks) text += " and " + std::to_string(ranks.size() - kNamedRanks) + " more";
  return text;
}

std::string DescribeMissing(const PartialState& state, uint32_t world) {
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < world; ++rank) {
    if (!std::binary_search(state.present.begin(), state.present.end(), rank)) missing.push_back(rank);
  }
  const std::string count =
      " (" + std::to_string(world - missing.size()) + " of " + std::to_string(world) + " present)";
  if (missing.size() == 1) return NameRanks(missing) + "'s record is missing" + count;
  return "the records of " + NameRanks(missing) + " are missing" + count;
}

}  // namespace deepfreeze
