#include "engine/upkeep.h"

#include <algorithm>
#include <new>
#include <utility>

namespace deepfreeze {

void UpkeepQueue::AskCleanUp(int64_t committed, bool durable) {
  const MutexLock lock(&mutex_);
  if (!durable) {
    held_for_ = std::max(held_for_, committed);
  } else {
    if (committed > held_for_) held_for_ = -1;
    asked_.committed = std::max(asked_.committed, committed);
    try {
      asked_.gathered.push_back(committed);
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the records stay, unread
    }
  }
  changed_.NotifyAll();
}

void UpkeepQueue::AskRemoval(const std::vector<int64_t>& steps) {
  const MutexLock lock(&mutex_);
  asked_.remove.insert(asked_.remove.end(), steps.begin(), steps.end());
  changed_.NotifyAll();
}

void UpkeepQueue::AskTidy() {
  const MutexLock lock(&mutex_);
  asked_.tidy = true;
  changed_.NotifyAll();
}

bool UpkeepQueue::Take(Upkeep* upkeep) {
  const MutexLock lock(&mutex_);
  while (!stopping_ && !AnyLocked()) changed_.Wait(&mutex_);
  if (!AnyLocked()) return false;
  *upkeep = std::exchange(asked_, Upkeep());
  working_ = true;
  return true;
}

void UpkeepQueue::Finish() {
  const MutexLock lock(&mutex_);
  working_ = false;
  changed_.NotifyAll();
}

bool UpkeepQueue::Await() {
  const MutexLock lock(&mutex_);
  const bool busy = BusyLocked();
  while (!stopping_ && BusyLocked()) changed_.Wait(&mutex_);
  return busy;
}

bool UpkeepQueue::AwaitUntil(CondVar::Time deadline) {
  const MutexLock lock(&mutex_);
  while (!stopping_ && BusyLocked() && changed_.WaitUntil(&mutex_, deadline)) {
  }
  return !BusyLocked();
}

void UpkeepQueue::Stop() {
  const MutexLock lock(&mutex_);
  stopping_ = true;
  changed_.NotifyAll();
}

}  // namespace deepfreeze
