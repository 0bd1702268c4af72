#include "base/thread_clocks.h"

#include <pthread.h>

#include <cstring>

namespace deepfreeze {
namespace {

double Now(clockid_t clock) {
  timespec spent = {};
  if (clock_gettime(clock, &spent) != 0) return 0;
  return static_cast<double>(spent.tv_sec) + static_cast<double>(spent.tv_nsec) * 1e-9;
}

}  // namespace

ThreadClocks::Running::Running(ThreadClocks* clocks, const char* name)
    : clocks_(pthread_getcpuclockid(pthread_self(), &clock_) == 0 ? clocks : nullptr), name_(name) {
  if (clocks_ == nullptr) return;
  const MutexLock lock(&clocks_->mutex_);
  next_ = clocks_->first_;
  clocks_->first_ = this;
}

ThreadClocks::Running::~Running() {
  if (clocks_ == nullptr) return;
  const MutexLock lock(&clocks_->mutex_);
  Running** link = &clocks_->first_;
  while (*link != this) link = &(*link)->next_;
  *link = next_;
  for (Ended& ended : clocks_->ended_) {
    if (ended.name != nullptr && std::strcmp(ended.name, name_) != 0) continue;
    ended.name = name_;
    ended.seconds += Now(clock_);
    return;
  }
}

std::map<std::string, double> ThreadClocks::Seconds() const {
  std::map<std::string, double> found;
  const MutexLock lock(&mutex_);
  for (const Ended& ended : ended_) {
    if (ended.name != nullptr) found[ended.name] += ended.seconds;
  }
  // A thread in this list has not ended, so its clock is there.
  for (const Running* one = first_; one != nullptr; one = one->next_) found[one->name_] += Now(one->clock_);
  return found;
}

double ThreadClocks::Total() const {
  double total = 0;
  const MutexLock lock(&mutex_);
  for (const Ended& ended : ended_) total += ended.seconds;
  for (const Running* one = first_; one != nullptr; one = one->next_) total += Now(one->clock_);
  return total;
}

}  // namespace deepfreeze
