#include "base/thread.h"

#ifdef __linux__
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace deepfreeze {

void BecomeBackgroundThread([[maybe_unused]] const char* name, [[maybe_unused]] int nice) {
#ifdef __linux__
  pthread_setname_np(pthread_self(), name);
  // Waking such a thread up does not take the core from the one that woke it: handing a checkpoint over must not cost
  // the training a time slice (4 ms).
  const sched_param plain = {};
  pthread_setschedparam(pthread_self(), SCHED_BATCH, &plain);
  // On Linux this is the thread's own. A refusal leaves the thread as fast as any other.
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), nice);
#endif
}

}  // namespace deepfreeze
