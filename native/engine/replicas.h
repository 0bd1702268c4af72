// Rank 0's knowledge of whether the ranks are replicas, that is, hold the same weights. The result of a comparison
// holds until the next one: ranks that differ do not come to agree by themselves.
#ifndef DEEPFREEZE_ENGINE_REPLICAS_H_
#define DEEPFREEZE_ENGINE_REPLICAS_H_

#include <string>

#include "engine/options.h"
#include "store/comparison.h"

namespace deepfreeze {

// Thread-compatible.
class Replicas {
 public:
  // What holds for a step at which the ranks are not compared: the result of the comparison at the newest step so far.
  const Divergence& known() const { return known_; }

  // Whether the next step's commit fails if its ranks differ, as df_refusal says.
  bool Refuses(Refuse refuse) const {
    return refuse == Refuse::kAll || (refuse == Refuse::kFirst && (comparisons_ < kFirstComparisons || from_start_));
  }

  // To be called once for each step at which the ranks took checksums, after the first try to commit it that has
  // compared them, successful or not. found: what holds after that (Holds). A comparison of a part that finds no
  // difference counts too, although it says nothing of the rest. Steps may come in any order.
  void Note(int64_t step, const Divergence& found) {
    const bool first = comparisons_++ < kFirstComparisons;
    if (step < known_at_ || !found.compared || (!found.whole && found.tensors == 0)) return;
    from_start_ = found.tensors > 0 && (from_start_ || first);
    known_ = NotComparedSince(step, found);
    known_at_ = step;
  }

 private:
  // Two, because ranks that begin alike and do not average their gradients differ only after their first update.
  static constexpr uint32_t kFirstComparisons = 2;
  uint32_t comparisons_ = 0;
  bool from_start_ = false;  // the first comparisons have found a difference, and no later one has found none
  Divergence known_;
  int64_t known_at_ = -1;  // the step of that comparison
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_REPLICAS_H_
