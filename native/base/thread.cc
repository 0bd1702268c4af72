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
  // Waking such a thread up does not take the core from the one that woke it: handing a checkpoint over must not cost
  // the training a time slice (4 ms).
  const sched_param plain = {};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &plain);
  // On Linux this is the thread's own, and so far the one of the thread that started it: a job may have been started
  // with nice(1). A refusal leaves the thread as fast as any other.
  constexpr int kLast = 19;
  const id_t thread = static_cast<id_t>(syscall(SYS_gettid));
  errno = 0;
  const int host = getpriority(PRIO_PROCESS, thread);
  if (errno == 0) setpriority(PRIO_PROCESS, thread, std::min(host + nice, kLast));
#endif
}

}  // namespace deepfreeze
