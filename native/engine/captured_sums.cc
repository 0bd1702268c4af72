#include "engine/captured_sums.h"

#include <iterator>

namespace deepfreeze {

void CapturedSums::Forget(const char* data, uint64_t size) {
  const MutexLock lock(&mutex_);
  auto first = sums_.lower_bound(data);
  if (first != sums_.begin()) {
    const auto before = std::prev(first);
    if (before->first + before->second.size > data) first = before;
  }
  sums_.erase(first, sums_.lower_bound(data + size));
}

void CapturedSums::Note(const std::vector<Sum>& sums) {
  const MutexLock lock(&mutex_);
  for (const Sum& sum : sums) sums_[sum.data] = sum;
}

void CapturedSums::GiveTo(Job* job) {
  const MutexLock lock(&mutex_);
  for (size_t i = 0; i < job->extents.size(); ++i) {
    const auto found = sums_.find(job->sources[i]);
    if (found == sums_.end() || found->second.size != job->extents[i].size) continue;
    job->extents[i].crc = found->second.crc;
    job->summed[i] = true;
  }
  sums_.clear();
}

}  // namespace deepfreeze
