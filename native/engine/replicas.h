// Rank 0's memory of whether the ranks are replicas. Between two comparisons what the last one found goes on: ranks
// that differ do not come to agree by themselves.
#ifndef DEEPFREEZE_ENGINE_REPLICAS_H_
#define DEEPFREEZE_ENGINE_REPLICAS_H_

#include <string>

#include "store/commit.h"

namespace deepfreeze {

// Used by the committer's thread alone.
class Replicas {
 public:
  // Of a step at which the ranks are not compared.
  const Divergence& known() const { return known_; }

  // After the commit of step, whatever came of it.
  void Note(int64_t step, const Divergence& found) {
    if (!found.compared) return;
    known_ = found;
    known_.compared = false;
    if (found.tensors > 0) known_.text = "not compared since step " + std::to_string(step) + ": " + found.text;
  }

 private:
  Divergence known_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_REPLICAS_H_
