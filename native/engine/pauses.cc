#include "engine/pauses.h"

#include <algorithm>
#include <cmath>

namespace deepfreeze {
namespace {

constexpr double kBegins = 0.8;      // of the usual wait
constexpr double kFirst = 0.0625;    // of the usual wait
constexpr double kGrows = 1.25;      // each pause against the last one
constexpr double kGuess = 0.6;       // of the wait before the first look, if that look found all: it was there earlier
constexpr double kSpread = 0.25;     // of a pause, over the ranks
constexpr double kGolden = 0.61803;  // its multiples, without whole numbers, lie evenly between 0 and 1

}  // namespace

Pauses::Pauses(uint32_t rank) : share_(1 - kSpread * (rank * kGolden - std::floor(rank * kGolden))) {}

uint64_t Pauses::usual_us() const { return std::min(waits_us_[0], waits_us_[1]); }

void Pauses::Begin(uint64_t begun_us) {
  begun_us_ = begun_us;
  pause_us_ = 0;
  ended_ = false;
}

uint64_t Pauses::Next(uint64_t now_us, uint64_t longest_us) {
  const auto usual = static_cast<double>(usual_us());
  const auto begins_us = begun_us_ + static_cast<uint64_t>(kBegins * usual * share_);
  if (pause_us_ == 0 && now_us < begins_us) return std::min(begins_us - now_us, longest_us);
  if (pause_us_ == 0) pause_us_ = std::max(kShortestUs, static_cast<uint64_t>(kFirst * usual));
  const uint64_t pause_us = std::min(pause_us_, longest_us);
  pause_us_ = static_cast<uint64_t>(kGrows * static_cast<double>(pause_us));
  return static_cast<uint64_t>(static_cast<double>(pause_us) * share_);
}

void Pauses::Ended(uint64_t now_us) {
  if (ended_) return;
  ended_ = true;
  const uint64_t waited_us = std::max(now_us, begun_us_) - begun_us_;
  Remember(pause_us_ == 0 ? static_cast<uint64_t>(kGuess * static_cast<double>(waited_us)) : waited_us);
}

void Pauses::Learn(const Pauses& copy) {
  if (copy.ended_) Remember(copy.waits_us_[0]);
}

void Pauses::Remember(uint64_t wait_us) {
  waits_us_[1] = waits_us_[0];
  waits_us_[0] = wait_us;
}

}  // namespace deepfreeze
