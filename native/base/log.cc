#include "base/log.h"

#include <utility>

namespace deepfreeze {

void Log::Add(std::string line) {
  const MutexLock lock(&mutex_);
  lines_.push_back(std::move(line));
  if (lines_.size() > kMost) lines_.pop_front();
}

std::vector<std::string> Log::Take(size_t most) {
  std::vector<std::string> taken;
  const MutexLock lock(&mutex_);
  while (taken.size() < most && !lines_.empty()) {
    taken.push_back(std::move(lines_.front()));
    lines_.pop_front();
  }
  return taken;
}

}  // namespace deepfreeze
