#include "engine/retention.h"

#include <utility>

#include "store/records.h"

namespace deepfreeze {

CleanUpRequest Retention::At(int64_t step) const {
  const Options& options = context_.options;
  const uint32_t backlog = options.in_flight + options.slots;
  return CleanUpRequest{options.run_dir, step, options.identity.attempt, options.identity.world, backlog};
}

void Retention::Run() {
  Upkeep upkeep;
  while (context_.table->NextForRetention(&upkeep)) {
    const Status status = Contained([&] { return Do(upkeep); });
    BestEffort([&] {
      // The user is told once for each cause, and not after each checkpoint.
      if (!status.ok() && status.message() != last_failure_) {
        context_.table->Notify(context_.options.run_dir + ": older checkpoints could not be removed (" +
                               status.message() + ")");
      }
      last_failure_ = status.message();
    });
    context_.table->FinishUpkeep();
  }
}

Status Retention::Do(const Upkeep& upkeep) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Options& options = context_.options;
  for (const int64_t step : upkeep.gathered) RemoveRecords(context_.env, options.run_dir, step);
  Status removed;
  for (const int64_t step : upkeep.remove) {
    // One by one: another attempt may take the run while a long list is being worked off, and whoever waits for the end
    // of it sees that something moves.
    if (leaves_) return removed;
    Status status = RemoveStep(context_.env, options.run_dir, options.identity.attempt, step);
    context_.table->Moved();
    if (removed.ok()) removed = std::move(status);
  }
  const Status cleaned = upkeep.committed >= 0 ? CleanUp(context_.env, At(upkeep.committed)) : Status();
  return removed.ok() ? cleaned : removed;
}

bool Retention::MakeRoom(int64_t step) {
  const bool waited = context_.table->AwaitUpkeep();
  std::lock_guard<std::mutex> lock(mutex_);
  bool removed = false;
  const bool ok = Contained([&] { return RemoveFailed(context_.env, At(step), &removed); }).ok();
  return waited || (ok && removed);
}

}  // namespace deepfreeze
