#include "engine/progress.h"

#include <algorithm>

#include "engine/stage.h"

namespace deepfreeze {
namespace {

// How many heartbeats fit into the bound of who waits: some may be late, or not seen at once.
constexpr uint64_t kBeatsPerBound = 8;

}  // namespace

void Progress::Moved(const JobRef& job) {
  table_->Moved();
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // another writer is at it
  const uint64_t now_us = env_->NowMicros();
  const uint64_t last_us = std::max(job->submitted_us, job->beat_us);
  // What is written soon costs no operation more.
  if (now_us < last_us + options_.commit_timeout_ms * 1000 / kBeatsPerBound) return;
  job->beat_us = now_us;
  // Memory may run out: what was written is written all the same.
  BestEffort([&] {
    if (job->heartbeat == nullptr) {
      job->heartbeat = std::make_unique<Heartbeat>(options_.run_dir, options_.At(job->step));
    }
    job->heartbeat->Beat(env_);
  });
}

}  // namespace deepfreeze
