// Rank 0's memory of whether the ranks are replicas. Between two comparisons what the last one found goes on: ranks
// that differ do not come to agree by themselves.
#ifndef DEEPFREEZE_ENGINE_REPLICAS_H_
#define DEEPFREEZE_ENGINE_REPLICAS_H_

#include <string>

#include "engine/options.h"
#include "store/commit.h"

namespace deepfreeze {

// Used by the committer's thread alone.
class Replicas {
 public:
  // Of a step at which the ranks are not compared.
  const Divergence& known() const { return known_; }

  // Whether the next step fails if its ranks differ.
  bool Refuses(Refuse refuse) const {
    return refuse == Refuse::kAll || (refuse == Refuse::kFirst && (comparisons_ < kFirstComparisons || from_start_));
  }

  // After the commit of step, whatever came of it. A commit that is made again is one comparison.
  void Note(int64_t step, const Divergence& found) {
    if (!found.compared || step == noted_) return;
    noted_ = step;
    from_start_ = found.tensors > 0 && (from_start_ || comparisons_ < kFirstComparisons);
    ++comparisons_;
    known_ = NotComparedSince(step, found);
  }

 private:
  // A second one, since ranks whose initial state is alike, and that do not average, differ from their first update on.
  static constexpr uint32_t kFirstComparisons = 2;
  int64_t noted_ = -1;  // the last step
  uint32_t comparisons_ = 0;
  bool from_start_ = false;  // the first comparisons have found a difference, and none since that it is gone
  Divergence known_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_REPLICAS_H_
