// What retention is asked to do, and has not done yet. Any thread asks; retention's thread takes the work.
#ifndef DEEPFREEZE_ENGINE_UPKEEP_H_
#define DEEPFREEZE_ENGINE_UPKEEP_H_

#include <atomic>
#include <cstdint>
#include <vector>

#include "base/mutex.h"

namespace deepfreeze {

struct Upkeep {
  int64_t committed = -1;         // clean up after the commit of this step; -1: nothing
  std::vector<int64_t> gathered;  // committed steps whose commit has gathered the records: the ranks' own may go
  std::vector<int64_t> remove;    // committed checkpoints to remove
  bool tidy = false;              // remove what failed steps and earlier removals have left
};

class UpkeepQueue {
 public:
  // After the commit of a step: cleans up; or, if the step's name is not known to be durable, holds all work back until
  // that of a newer step is. Allocates no memory that it needs.
  void AskCleanUp(int64_t committed, bool durable);
  // Whether a loss of power may take the newest commit.
  bool Held() const;
  void AskRemoval(const std::vector<int64_t>& steps);
  void AskTidy();
  // The work taken last could not tidy up all of it, because other ranks have still to learn something: has that tried
  // again a little later, some times, each after a longer pause. Whoever waits for all work waits for that too.
  void TidyAgain();
  // Waits for work and takes all of it. RETURNS false if the queue is stopped, and all that was asked for is done.
  bool Take(Upkeep* upkeep);
  // The work taken last is done.
  void Finish();
  // Waits until all that was asked for is done or held back, or the queue is stopped. RETURNS whether there was
  // anything to wait for.
  bool Await();
  // As Await, until `deadline`. RETURNS whether there is nothing left to do.
  bool AwaitUntil(CondVar::Time deadline);
  // Ends every wait, but for Take while there is work.
  void Stop();

 private:
  bool AnyLocked() const REQUIRES(mutex_) {
    return held_for_ < 0 && (asked_.committed >= 0 || !asked_.remove.empty() || asked_.tidy);
  }
  bool BusyLocked() const REQUIRES(mutex_) { return working_ || AnyLocked() || WaitsLocked(); }
  // Whether there will be work in a moment.
  bool WaitsLocked() const REQUIRES(mutex_) { return held_for_ < 0 && again_at_ != CondVar::Time::max(); }

  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ GUARDED_BY(mutex_) = false;
  Upkeep asked_ GUARDED_BY(mutex_);
  // The newest step whose commit a loss of power may take, so that nothing older is deleted; -1: there is none.
  int64_t held_for_ GUARDED_BY(mutex_) = -1;
  int64_t durable_ GUARDED_BY(mutex_) = -1;  // the newest step whose commit it may not take
  bool working_ GUARDED_BY(mutex_) = false;
  uint32_t again_ GUARDED_BY(mutex_) = 0;  // how often in turn it was asked to tidy up again
  CondVar::Time again_at_ GUARDED_BY(mutex_) = CondVar::Time::max();
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_UPKEEP_H_
