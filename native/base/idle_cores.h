// How many cores a process leaves idle, of those that are its own.
#ifndef DEEPFREEZE_BASE_IDLE_CORES_H_
#define DEEPFREEZE_BASE_IDLE_CORES_H_

#include <cstdint>

#include "base/env.h"
#include "base/mutex.h"

namespace deepfreeze {

// How many cores each of `processes` on one machine has, if they are bound alike; 0 processes count as one. Bound to
// cores of their own, as by SLURM: these. Not bound, or several to the same cores, as Open MPI binds them to a socket:
// an equal part of the machine.
//
// Processes that share a part of the machine and have nothing outside of it, as in a container, are given too much: up
// to all of that part, each. Their training then counts as leaving cores idle for longer than it does. Nothing here
// tells them from processes that are bound to cores of their own.
double CoresOfEach(const CoreCount& cores, size_t processes);

// Times are in microseconds: now_us by a clock that never jumps, used_us is the CPU time of all threads of the process.
class IdleCores {
 public:
  // share: how many cores are this process's own, as CoresOfEach says.
  IdleCores(double share, uint64_t now_us, uint64_t used_us) : share_(share), since_us_(now_us), used_us_(used_us) {}

  // The cores of the share that were idle, on average since the call before, or since the construction. A call that
  // follows within kShortestUs returns what the call before did; 0 while nothing is known. Thread-safe.
  double Average(uint64_t now_us, uint64_t used_us);

  static constexpr uint64_t kShortestUs = 20000;  // a shorter time says nothing about an average

 private:
  const double share_;
  Mutex mutex_;
  uint64_t since_us_ GUARDED_BY(mutex_);
  uint64_t used_us_ GUARDED_BY(mutex_);
  double idle_ GUARDED_BY(mutex_) = 0;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_IDLE_CORES_H_
