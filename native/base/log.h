// Lines for people about what an engine meets on its way: a store that fails for a while, a rank that takes long. They
// are no failures, which reports tell of.
#ifndef DEEPFREEZE_BASE_LOG_H_
#define DEEPFREEZE_BASE_LOG_H_

#include <deque>
#include <string>
#include <vector>

#include "base/mutex.h"

namespace deepfreeze {

// All methods may be called from any thread.
class Log {
 public:
  static constexpr size_t kMost = 256;  // lines that wait to be taken; the oldest go first

  // May throw std::bad_alloc; then the line is lost.
  void Add(std::string line);
  // The oldest lines, at most so many, which are then forgotten.
  std::vector<std::string> Take(size_t most);

 private:
  Mutex mutex_;
  std::deque<std::string> lines_ GUARDED_BY(mutex_);
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_LOG_H_
