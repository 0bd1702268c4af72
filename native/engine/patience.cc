#include "engine/patience.h"

#include <algorithm>

namespace deepfreeze {
namespace {

constexpr uint64_t kFirstPauseMs = 10;
constexpr uint64_t kLongestPauseMs = 5000;

}  // namespace

bool Patience::Again(const Status& status) noexcept {
  JobTable* table = context_.table;
  if (!status.transient()) {
    if (failed_) table->SetWaitsFor(job_, std::string());
    return false;
  }
  const uint64_t now_us = context_.env->NowMicros();
  if (!failed_) {
    since_us_ = now_us;
    pause_ms_ = kFirstPauseMs;
  }
  failed_ = true;
  const uint64_t waited_ms = (now_us - since_us_) / 1000;
  if (waited_ms >= context_.options.commit_timeout_ms) return false;
  BestEffort([&] { table->SetWaitsFor(job_, "waits for a store that fails (" + status.message() + ")"); });
  table->Pause(std::min(pause_ms_, context_.options.commit_timeout_ms - waited_ms));
  pause_ms_ = std::min(2 * pause_ms_, kLongestPauseMs);
  return !table->stopping();
}

}  // namespace deepfreeze
