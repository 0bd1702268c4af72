// A BusyClock tells for how long something was under way, in one thread or in several at once.
#ifndef DEEPFREEZE_BASE_BUSY_CLOCK_H_
#define DEEPFREEZE_BASE_BUSY_CLOCK_H_

#include <chrono>
#include <cstdint>

#include "base/mutex.h"

namespace deepfreeze {

// All methods may be called from any thread. The lock is held for a few instructions.
class BusyClock {
 public:
  // The clock runs for as long as at least one of these objects lives.
  class Running {
   public:
    // clock must outlive this object.
    explicit Running(BusyClock* clock) : clock_(clock) { clock_->Change(1); }
    ~Running() { clock_->Change(-1); }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    BusyClock* const clock_;
  };

  // RETURNS microseconds until now.
  uint64_t Micros() const {
    const MutexLock lock(&mutex_);
    const Time::duration busy = running_ > 0 ? busy_ + (std::chrono::steady_clock::now() - since_) : busy_;
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(busy).count());
  }

 private:
  using Time = std::chrono::steady_clock::time_point;

  void Change(int more) {
    const MutexLock lock(&mutex_);
    // The time is read under the lock, so that of two threads the later one has the later time.
    const Time now = std::chrono::steady_clock::now();
    if (running_ > 0) busy_ += now - since_;
    since_ = now;
    running_ += more;
  }

  mutable Mutex mutex_;
  int running_ GUARDED_BY(mutex_) = 0;
  Time since_ GUARDED_BY(mutex_);
  Time::duration busy_ GUARDED_BY(mutex_) = {};
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_BUSY_CLOCK_H_
