// The niceness of the engine's threads: the option is added to the job's own, which may have been started by nice(1).
#include "base/thread.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "testing/check.h"

namespace {

int Nice() {
  errno = 0;
  const int nice = getpriority(PRIO_PROCESS, 0);  // of the calling thread, on Linux
  CHECK(errno == 0);
  return nice;
}

// Returns the niceness of a background thread that a thread of niceness `host` starts.
int Background(int host, int nice) {
  int found = 0;
  std::thread([&] {
    CHECK(setpriority(PRIO_PROCESS, 0, host) == 0);
    std::thread([&] {
      deepfreeze::BecomeBackgroundThread("df-test", nice);
      found = Nice();
    }).join();
  }).join();
  return found;
}

}  // namespace

int main() {
  const int own = Nice();
  CHECK_EQ(Background(own, 0), own);
  CHECK_EQ(Background(own, 3), std::min(own + 3, 19));
  if (own > 15) return 0;  // a priority is not given back
  CHECK_EQ(Background(15, 0), 15);
  CHECK_EQ(Background(15, 3), 18);
  CHECK_EQ(Background(15, 10), 19);
}
