// Who has come to the meeting of a step, as a rank sees it.
#ifndef DEEPFREEZE_STORE_ROLL_H_
#define DEEPFREEZE_STORE_ROLL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace deepfreeze {

struct PartialState {
  bool exists = false;
  std::vector<uint32_t> present;                     // ranks with a record, sorted
  std::vector<uint32_t> failed;                      // ranks with a marker, sorted
  std::vector<std::pair<uint32_t, uint64_t>> alive;  // ranks with a heartbeat, and its number; in no order
};

// Whether ranks move, seen from one look at a step to the next. Thread-compatible.
class Pulse {
 public:
  // RETURNS whether something has moved between the last call's state and this one's: a record is there that was not,
  // or a rank without a record has shown another heartbeat. False for the first call, which has nothing to compare
  // with.
  bool Moved(const PartialState& state);

 private:
  bool looked_ = false;
  size_t records_ = 0;
  // The greatest number seen of each rank; a listing may miss a file being renamed.
  std::map<uint32_t, uint64_t> beats_;
};

// "rank 3", "ranks 1, 3", "ranks 0, 1, ... and 20 more".
std::string NameRanks(const std::vector<uint32_t>& ranks);

// "rank 3's record is missing (3 of 4 present)". REQUIRES: the present ranks are sorted, as ScanPartial leaves them.
std::string DescribeMissing(const PartialState& state, uint32_t world);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_ROLL_H_
