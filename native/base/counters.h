// An engine's counters: df_stats in C++, whose comments say what each number means.
//
// Each number is an atomic of its own, which is added to and nothing more: counting orders no memory and takes no lock.
// A clock takes a lock for a few instructions.
#ifndef DEEPFREEZE_BASE_COUNTERS_H_
#define DEEPFREEZE_BASE_COUNTERS_H_

#include <atomic>
#include <cstdint>

#include "base/busy_clock.h"
#include "base/env.h"
#include "base/thread_clocks.h"

namespace deepfreeze {

class Counter {
 public:
  void Add(uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// One place where files are: the external store, or the local tier.
struct PlaceCounters {
  Counter direct_bytes;
  Counter cached_bytes;
  Counter read_bytes;
  Counter syncs;
  Counter metadata;
  Counter lists;
  Counter names;
  BusyClock writing;  // while the bytes of a checkpoint are on their way there
};

struct Counters {
  PlaceCounters external;
  PlaceCounters local;
  Counter waits;
  Counter wait_us;
  Counter looks;
  Counter pauses;
  Counter pause_us;
  Counter copied_bytes;
  Counter copy_ns;
  ThreadClocks threads;
};

// Counts one call, and for how long it lasts, if it lasts for least_us microseconds or longer.
class CountedTime {
 public:
  // All arguments must outlive this object.
  CountedTime(Env* env, Counter* calls, Counter* us, uint64_t least_us)
      : env_(env), calls_(calls), us_(us), least_us_(least_us), begun_us_(env->NowMicros()) {}
  ~CountedTime() {
    const uint64_t lasted_us = env_->NowMicros() - begun_us_;
    if (lasted_us < least_us_) return;
    calls_->Add();
    us_->Add(lasted_us);
  }
  CountedTime(const CountedTime&) = delete;
  CountedTime& operator=(const CountedTime&) = delete;

 private:
  Env* const env_;
  Counter* const calls_;
  Counter* const us_;
  const uint64_t least_us_;
  const uint64_t begun_us_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_COUNTERS_H_
