#include "engine/patience.h"

#include <algorithm>

#include "format/names.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kFirstPauseMs = 10;
constexpr uint64_t kLongestPauseMs = 5000;

}  // namespace

bool Patience::Again(const Status& status) noexcept {
  JobTable* table = context_.table;
  if (!status.transient()) {
    if (failed_) table->SetWaitsFor(job_, std::string());
    if (failed_ && status.ok())
      BestEffort([&] { context_.log->Add(Where() + ": the store takes it after " + Waited()); });
    return false;
  }
  const uint64_t now_us = context_.env->NowMicros();
  if (!failed_) {
    since_us_ = now_us;
    pause_ms_ = kFirstPauseMs;
  }
  if (!failed_) BestEffort([&] { context_.log->Add(Where() + ": tried again: " + status.message()); });
  failed_ = true;
  const uint64_t waited_ms = (now_us - since_us_) / 1000;
  if (waited_ms >= context_.options.commit_timeout_ms) return false;
  BestEffort([&] { table->SetWaitsFor(job_, "waits for a store that fails (" + status.message() + ")"); });
  const CountedTime time(context_.env, &context_.counters->pauses, &context_.counters->pause_us, 0);
  table->Pause(std::min(pause_ms_, context_.options.commit_timeout_ms - waited_ms));
  pause_ms_ = std::min(2 * pause_ms_, kLongestPauseMs);
  return !table->stopping();
}

std::string Patience::Where() const { return Join(context_.options.run_dir, StepName(job_->step)); }

std::string Patience::Waited() const { return std::to_string((context_.env->NowMicros() - since_us_) / 1000) + " ms"; }

}  // namespace deepfreeze
