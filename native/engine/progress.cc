#include "engine/progress.h"

#include <algorithm>

#include "engine/stage.h"

namespace deepfreeze {
namespace {

// How many heartbeats a rank writes within the time-out of the ranks that wait for it: some come late, or are seen
// late.
constexpr uint64_t kBeatsPerBound = 8;

}  // namespace

void Progress::Moved(const JobRef& job) {
  table_->Moved();
  if (!mutex_.TryLock()) return;  // another writer thread is just writing the heartbeat
  Beat(job.get());
  mutex_.Unlock();
}

void Progress::Beat(Job* job) {
  const uint64_t now_us = env_->NowMicros();
  const uint64_t last_us = std::max(job->submitted_us, job->beat_us);
  // A step that is written within the first part of the time-out needs no heartbeat, and so no further file operation.
  if (now_us < last_us + options_.commit_timeout_ms * 1000 / kBeatsPerBound) return;
  job->beat_us = now_us;
  // Without memory for the heartbeat the step goes on.
  BestEffort([&] { meeting_->Beat(job->step, ++job->beats); });
}

}  // namespace deepfreeze
