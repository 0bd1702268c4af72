#include "engine/remover.h"

#include <limits>
#include <utility>

namespace deepfreeze {

CleanUpRequest Remover::At(int64_t step) const {
  const Options& options = context_.options;
  const uint32_t backlog = options.in_flight + options.slots;
  return CleanUpRequest{step, options.identity.attempt, options.identity.world, backlog,
                        context_.table->UnfinishedSteps()};
}

void Remover::Run() {
  Upkeep upkeep;
  while (context_.upkeep->Take(&upkeep)) {
    const Status status = Contained([&] { return Do(upkeep); });
    BestEffort([&] {
      // The user is told once for each cause, and not after each checkpoint.
      if (!status.ok() && status.message() != last_failure_) {
        context_.table->Notify(context_.store->place() + ": older checkpoints could not be removed (" +
                               status.message() + ")");
      }
      last_failure_ = status.message();
    });
    // A try to tidy up that removes nothing is no movement: whoever waits for it must not wait for ever.
    if (upkeep.committed >= 0 || !upkeep.remove.empty() || tidied_) context_.table->Moved();
    context_.upkeep->Finish();
  }
}

Status Remover::Do(const Upkeep& upkeep) {
  const MutexLock lock(&mutex_);
  Store* store = context_.store;
  for (const int64_t step : upkeep.gathered) store->Tidy(step);
  Status removed;
  for (const int64_t step : upkeep.remove) {
    // One by one: another attempt may take the run while a long list is being worked off, and whoever waits for the end
    // of it sees that something moves.
    if (leaves_) return removed;
    Status status = store->Remove(step, context_.options.identity.attempt);
    context_.table->Moved();
    if (removed.ok()) removed = std::move(status);
  }
  tidied_ = false;
  if (upkeep.tidy) {
    MadeRoom made;
    Status tidied = store->MakeRoom(At(std::numeric_limits<int64_t>::max()), &made);
    tidied_ = made.removed && tidied.ok();
    if (made.awaits && !leaves_) context_.upkeep->TidyAgain();
    if (removed.ok()) removed = std::move(tidied);
  }
  const Status cleaned = upkeep.committed >= 0 ? store->CleanUp(At(upkeep.committed)) : Status();
  return removed.ok() ? cleaned : removed;
}

bool Remover::MakeRoom(int64_t step) {
  const bool waited = context_.upkeep->Await();
  const MutexLock lock(&mutex_);
  MadeRoom made;
  const bool ok = Contained([&] { return context_.store->MakeRoom(At(step), &made); }).ok();
  return waited || (ok && made.removed);
}

}  // namespace deepfreeze
