// A thread that makes a call which waits for something. For tests only.
#ifndef DEEPFREEZE_TESTING_WAITING_H_
#define DEEPFREEZE_TESTING_WAITING_H_

#include <atomic>
#include <chrono>
#include <thread>

#include "base/mutex.h"
#include "testing/check.h"

namespace deepfreeze {

// The thread most likely waits by the time the constructor ends, so that a call that must wake it finds it asleep; the
// test holds as well if it does not.
class Waiting {
 public:
  template <typename Call>
  explicit Waiting(const Call& call) {
    thread_ = std::thread([this, call] {
      begun_ = true;
      call();
      ended_ = true;
    });
    while (!begun_) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  // To be called after what ends the wait.
  void Join() {
    const auto deadline = Deadline(60000);
    while (!ended_ && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
    CHECK(ended_);  // else nothing has woken it
    thread_.join();
  }

 private:
  std::atomic<bool> begun_{false};
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_TESTING_WAITING_H_
