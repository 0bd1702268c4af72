#include "base/thread.h"

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#endif

namespace deepfreeze {

void BecomeBackgroundThread([[maybe_unused]] const char* name, [[maybe_unused]] int nice) {
#ifdef __linux__
  pthread_setname_np(pthread_self(), name);
  // A batch thread that is woken up does not take the core from the thread that woke it. So handing a checkpoint over
  // never costs the training a time slice (4 ms).
  const sched_param plain = {};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &plain);
  // On Linux each thread has a niceness of its own, which it inherits from the thread that started it: the job itself
  // may have been started by nice(1). If the system refuses the new value, the thread keeps the old one.
  constexpr int kLast = 19;
  const id_t thread = static_cast<id_t>(syscall(SYS_gettid));
  errno = 0;
  const int host = getpriority(PRIO_PROCESS, thread);
  if (errno == 0) setpriority(PRIO_PROCESS, thread, std::min(host + nice, kLast));
#endif
}

}  // namespace deepfreeze
