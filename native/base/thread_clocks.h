// CPU seconds of an engine's threads, by name.
#ifndef DEEPFREEZE_BASE_THREAD_CLOCKS_H_
#define DEEPFREEZE_BASE_THREAD_CLOCKS_H_

#include <array>
#include <ctime>
#include <map>
#include <string>

#include "base/mutex.h"

namespace deepfreeze {

// All methods may be called from any thread. Threads need no memory of the heap to be counted: an engine whose memory
// has run out must not end for it.
class ThreadClocks {
 public:
  static constexpr size_t kNames = 16;  // threads of further names are not counted once they have ended

  // Counts the calling thread's CPU time under a name for as long as this object lives, in this thread.
  class Running {
   public:
    // clocks: null counts nothing. It must outlive this object; the name must outlive the clocks.
    Running(ThreadClocks* clocks, const char* name);
    ~Running();
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    friend class ThreadClocks;
    clockid_t clock_ = {};  // of this thread, for others to read
    ThreadClocks* const clocks_;
    const char* const name_;
    Running* next_ = nullptr;
  };

  // Name -> CPU seconds of the threads that run, or have run, under it. 0 where the system doesn't tell.
  std::map<std::string, double> Seconds() const;
  // The sum of Seconds. Allocates no memory.
  double Total() const;

 private:
  struct Ended {
    const char* name = nullptr;
    double seconds = 0;
  };

  mutable Mutex mutex_;
  Running* first_ GUARDED_BY(mutex_) = nullptr;
  std::array<Ended, kNames> ended_ GUARDED_BY(mutex_);
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_THREAD_CLOCKS_H_
