// The comparison of the ranks' replica checksums, which are at the end of their private bytes.
#ifndef DEEPFREEZE_STORE_COMPARISON_H_
#define DEEPFREEZE_STORE_COMPARISON_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "format/record.h"

namespace deepfreeze {

// The result of comparing the ranks' replica checksums, which are at the end of their private bytes.
struct Divergence {
  bool compared = false;  // whether the ranks took checksums at this step; if they did not, all checksums are zero
  bool whole = false;     // whether the checksums are of whole tensors, and not of a part of the replicated bytes
  uint32_t tensors = 0;   // how many tensors differ between the ranks
  int32_t first = -1;     // number of the first tensor that differs, -1 if none does
  std::string text;       // "2 tensors differ between the ranks, the first on rank 3"
};

// RETURNS what holds for a step whose comparison has found `found`, if the comparisons before it have found `known`.
// Only a comparison of whole tensors ends a difference that is known.
Divergence Holds(const Divergence& found, const Divergence& known);

// `found` is the result of the comparison at `step`. RETURNS what holds for later steps until the next comparison: the
// same tensors, and the text "not compared since step N: ...".
Divergence NotComparedSince(int64_t step, const Divergence& found);

// Compares the replica checksums of all ranks with rank 0's, one rank after the other. Thread-compatible.
class Comparison {
 public:
  // REQUIRES: private bytes for as many checksums as its identity says, which every record has that DecodeRecord has
  // accepted. Records come in the ranks' order; the first one is what the others are compared with.
  void Add(const Record& record);
  uint32_t ranks() const { return static_cast<uint32_t>(ranks_); }
  // RETURNS what the records so far show. Records of different parts can't be compared: they count as not compared.
  Divergence Result() const;

 private:
  size_t ranks_ = 0;
  bool taken_ = false;
  bool same_part_ = true;                           // all ranks took the checksums of the same bytes
  std::string part_;                                // which bytes those are; "" for all
  std::string first_;                               // rank 0's checksums
  std::map<size_t, std::vector<uint32_t>> differ_;  // number of the checksum -> the ranks that differ from rank 0
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_COMPARISON_H_
