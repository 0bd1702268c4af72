// For how long at least one of several calls, in any thread, was under way.
#ifndef DEEPFREEZE_BASE_BUSY_CLOCK_H_
#define DEEPFREEZE_BASE_BUSY_CLOCK_H_

#include <chrono>
#include <cstdint>

#include "base/mutex.h"

namespace deepfreeze {

// All methods may be called from any thread. The lock is held for a few instructions; the calls that are counted move
// blocks of a file.
class BusyClock {
 public:
  // A call is under way for as long as this object lives.
  class Call {
   public:
    // clock must outlive this object.
    explicit Call(BusyClock* clock) : clock_(clock) { clock_->Change(1); }
    ~Call() { clock_->Change(-1); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    BusyClock* const clock_;
  };

  // RETURNS microseconds, those of the calls under way included.
  uint64_t Micros() const {
    const MutexLock lock(&mutex_);
    const Time::duration busy = calls_ > 0 ? busy_ + (std::chrono::steady_clock::now() - since_) : busy_;
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(busy).count());
  }

 private:
  using Time = std::chrono::steady_clock::time_point;

  void Change(int calls) {
    const MutexLock lock(&mutex_);
    // Read under the lock: of two threads the later one then has the later time.
    const Time now = std::chrono::steady_clock::now();
    if (calls_ > 0) busy_ += now - since_;
    since_ = now;
    calls_ += calls;
  }

  mutable Mutex mutex_;
  int calls_ GUARDED_BY(mutex_) = 0;
  Time since_ GUARDED_BY(mutex_);
  Time::duration busy_ GUARDED_BY(mutex_) = {};
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_BUSY_CLOCK_H_
