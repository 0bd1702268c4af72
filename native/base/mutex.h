// std::mutex and std::condition_variable with the annotations that clang's -Wthread-safety checks (tools/analyse.py):
// which mutex guards which member, and which functions want it held. Other compilers see nothing of them.
#ifndef DEEPFREEZE_BASE_MUTEX_H_
#define DEEPFREEZE_BASE_MUTEX_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#if defined(__clang__)
#define DF_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define DF_THREAD_ANNOTATION(x)
#endif
// Of a member: it is read and written while this mutex is held.
#define GUARDED_BY(mutex) DF_THREAD_ANNOTATION(guarded_by(mutex))
// Of a function: the caller holds, or does not hold, these mutexes.
#define REQUIRES(...) DF_THREAD_ANNOTATION(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) DF_THREAD_ANNOTATION(locks_excluded(__VA_ARGS__))
// Of a function: it takes, or gives back, these mutexes.
#define ACQUIRE(...) DF_THREAD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) DF_THREAD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define RELEASE(...) DF_THREAD_ANNOTATION(release_capability(__VA_ARGS__))

namespace deepfreeze {

// The end of a wait of at most `ms` milliseconds, or of a year, if that is less.
inline std::chrono::steady_clock::time_point Deadline(uint64_t ms) {
  constexpr uint64_t kYearMs = uint64_t{1000} * 3600 * 24 * 365;
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(ms < kYearMs ? ms : kYearMs);
}

class DF_THREAD_ANNOTATION(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ACQUIRE() { mutex_.lock(); }
  bool TryLock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void Unlock() RELEASE() { mutex_.unlock(); }
  // Tells the analysis that the caller holds this mutex, where it can't see that: in a lambda. Does nothing.
  void AssertHeld() const DF_THREAD_ANNOTATION(assert_capability(this)) {}
  // Tells the analysis that the caller may read what this mutex guards, because it holds another mutex without which
  // nobody changes that. Does nothing.
  void AssertReadable() const DF_THREAD_ANNOTATION(assert_shared_capability(this)) {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

class DF_THREAD_ANNOTATION(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_->Lock(); }
  ~MutexLock() RELEASE() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

class CondVar {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Waits until the next Notify*, or until something else wakes the thread: the caller looks again.
  void Wait(Mutex* mutex) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    condition_.wait(lock);
    lock.release();
  }
  // RETURNS false if it is `deadline` already.
  bool WaitUntil(Mutex* mutex, Time deadline) REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const bool in_time = condition_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  void NotifyOne() { condition_.notify_one(); }
  void NotifyAll() { condition_.notify_all(); }

 private:
  std::condition_variable condition_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_MUTEX_H_
