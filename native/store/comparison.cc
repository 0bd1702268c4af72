#include "store/comparison.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "format/named_values.h"
#include "store/roll.h"

namespace deepfreeze {
namespace {

// The named value that says which of the replicated bytes the checksums are of: docs/format.md, "Named values".
constexpr char kPart[] = "compared_part";

}  // namespace

Divergence Holds(const Divergence& found, const Divergence& known) {
  const bool news = found.compared && (found.whole || found.tensors > known.tensors);
  return news ? found : known;
}

Divergence NotComparedSince(int64_t step, const Divergence& found) {
  Divergence known = found;
  known.compared = false;
  if (found.tensors > 0) known.text = "not compared since step " + std::to_string(step) + ": " + found.text;
  return known;
}

void Comparison::Add(const Record& record) {
  const size_t n = record.identity.hashes;
  const char* mine = record.private_data.data() + record.private_data.size() - 4 * n;
  std::string_view part;
  if (!FindNamedValue(record.values, kPart, &part)) part = "";
  if (ranks_++ == 0) {
    first_.assign(mine, 4 * n);
    part_ = part;
  }
  same_part_ = same_part_ && part == part_;
  taken_ = taken_ || std::any_of(mine, mine + 4 * n, [](char byte) { return byte != 0; });
  for (size_t i = 0; i < n && 4 * n == first_.size(); ++i) {
    if (std::memcmp(mine + 4 * i, first_.data() + 4 * i, 4) != 0) differ_[i].push_back(record.identity.rank);
  }
}

Divergence Comparison::Result() const {
  Divergence result;
  result.compared = taken_ && same_part_;
  result.whole = part_.empty();
  if (differ_.empty() || !same_part_) return result;
  const auto& [number, ranks] = *differ_.begin();
  result.tensors = static_cast<uint32_t>(differ_.size());
  result.first = static_cast<int32_t>(number);
  // The majority is taken to be right. If most ranks differ from rank 0, rank 0 is the one that is named.
  const bool others = 2 * ranks.size() > ranks_;
  result.text = std::to_string(differ_.size()) + (differ_.size() == 1 ? " tensor differs" : " tensors differ") +
                " between the ranks, the first on " + (others ? "rank 0" : NameRanks(ranks));
  return result;
}

}  // namespace deepfreeze
