#include "base/thread.h"

#ifdef __linux__
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace deepfreeze {

void BecomeBackgroundThread([[maybe_unused]] const char* name, [[maybe_unused]] int nice) {
#ifdef __linux__
  pthread_setname_np(pthread_self(), name);
  // On Linux this is the thread's own. A refusal leaves the thread as fast as any other.
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), nice);
#endif
}

}  // namespace deepfreeze
