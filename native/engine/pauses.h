// When a rank looks again for what it waits for: seldom, because the looks of many ranks load a store's metadata
// server, and soon after it is there.
//
// The waits for one checkpoint after another take about as long. So a rank begins to look when 0.8 of that time is
// over, and then in growing intervals, of which the first is a sixteenth of that time. Until it knows such a time it
// begins at once. All pauses of a rank are shorter by a part of its own, so that the ranks look at different times.
#ifndef DEEPFREEZE_ENGINE_PAUSES_H_
#define DEEPFREEZE_ENGINE_PAUSES_H_

#include <cstdint>

namespace deepfreeze {

// Times are in microseconds, of a clock that never jumps. Thread-compatible.
class Pauses {
 public:
  static constexpr uint64_t kShortestUs = 500;
  static constexpr uint64_t kLongestUs = 2000000;

  explicit Pauses(uint32_t rank);

  // A wait has begun at begun_us.
  void Begin(uint64_t begun_us);
  // How long to pause now, before the next look. At most `longest_us`.
  uint64_t Next(uint64_t now_us, uint64_t longest_us = kLongestUs);
  // What is waited for is there. Only the first call after Begin counts.
  void Ended(uint64_t now_us);
  // Several waits at once: each begins with a copy of the same object, and what it has learned comes back to that one.
  // Does nothing if the copy's wait has not ended.
  void Learn(const Pauses& copy);

 private:
  // The shorter one of the last two waits; 0 if there was none. One slow checkpoint does not delay the next ones.
  uint64_t usual_us() const;
  void Remember(uint64_t wait_us);

  const double share_;  // of each pause, which this rank makes: 0.75 to 1
  uint64_t begun_us_ = 0;
  uint64_t pause_us_ = 0;  // the next one after the first look; 0: before that look
  bool ended_ = true;
  uint64_t waits_us_[2] = {0, 0};
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_PAUSES_H_
