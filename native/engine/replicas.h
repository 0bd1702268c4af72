// Rank 0's knowledge of whether the ranks are replicas, that is, hold the same weights. The result of a comparison
// holds until the next one: ranks that differ do not come to agree by themselves.
#ifndef DEEPFREEZE_ENGINE_REPLICAS_H_
#define DEEPFREEZE_ENGINE_REPLICAS_H_

#include <string>

#include "engine/options.h"
#include "store/comparison.h"

namespace deepfreeze {

// Used by the committer's thread alone.
class Replicas {
 public:
  // What holds for a step at which the ranks are not compared: the result of the last comparison.
  const Divergence& known() const { return known_; }

  // Whether the next step's commit fails if its ranks differ, as df_refusal says.
  bool Refuses(Refuse refuse) const {
    return refuse == Refuse::kAll || (refuse == Refuse::kFirst && (comparisons_ < kFirstComparisons || from_start_));
  }

  // To be called after each try to commit `step`, successful or not. compared: whether the ranks took checksums; found:
  // what holds after that (Holds). Several tries for one step count as one comparison, and so does a comparison of a
  // part that finds no difference, although it says nothing of the rest.
  void Note(int64_t step, bool compared, const Divergence& found) {
    if (!compared || step == noted_) return;
    noted_ = step;
    const bool first = comparisons_++ < kFirstComparisons;
    if (!found.compared || (!found.whole && found.tensors == 0)) return;
    from_start_ = found.tensors > 0 && (from_start_ || first);
    known_ = NotComparedSince(step, found);
  }

 private:
  // Two, because ranks that begin alike and do not average their gradients differ only after their first update.
  static constexpr uint32_t kFirstComparisons = 2;
  int64_t noted_ = -1;  // the step of the last comparison
  uint32_t comparisons_ = 0;
  bool from_start_ = false;  // the first comparisons have found a difference, and no later one has found none
  Divergence known_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_REPLICAS_H_
