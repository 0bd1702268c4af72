#include "engine/upkeep.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

namespace deepfreeze {
namespace {

// 0.05 s, 0.1 s and so on: 6 s together.
constexpr uint64_t kFirstAgainMs = 50;
constexpr uint32_t kMostAgain = 7;

}  // namespace

void UpkeepQueue::AskCleanUp(int64_t committed, bool durable) {
  const MutexLock lock(&mutex_);
  if (!durable) {
    if (committed > durable_) held_for_ = std::max(held_for_, committed);
  } else {
    durable_ = std::max(durable_, committed);
    if (committed > held_for_) held_for_ = -1;
    asked_.committed = std::max(asked_.committed, committed);
    try {
      asked_.gathered.push_back(committed);
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the records stay, unread
    }
  }
  changed_.NotifyAll();
}

bool UpkeepQueue::Held() const {
  const MutexLock lock(&mutex_);
  return held_for_ >= 0;
}

void UpkeepQueue::AskRemoval(const std::vector<int64_t>& steps) {
  const MutexLock lock(&mutex_);
  asked_.remove.insert(asked_.remove.end(), steps.begin(), steps.end());
  changed_.NotifyAll();
}

void UpkeepQueue::AskTidy() {
  const MutexLock lock(&mutex_);
  asked_.tidy = true;
  again_ = 0;
  changed_.NotifyAll();
}

void UpkeepQueue::TidyAgain() {
  const MutexLock lock(&mutex_);
  if (again_ >= kMostAgain) return;
  again_at_ = std::chrono::steady_clock::now() + std::chrono::milliseconds(kFirstAgainMs << again_++);
}

bool UpkeepQueue::Take(Upkeep* upkeep) {
  const MutexLock lock(&mutex_);
  while (!stopping_ && !AnyLocked()) {
    if (!WaitsLocked()) {
      changed_.Wait(&mutex_);
    } else if (!changed_.WaitUntil(&mutex_, again_at_)) {
      asked_.tidy = true;
    }
  }
  if (!AnyLocked()) return false;
  if (asked_.tidy) again_at_ = CondVar::Time::max();
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
