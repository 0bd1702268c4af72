// The checksums that captures compute while they copy, by address, until the capture is submitted. So no stage needs to
// read the bytes again for them. Thread-safe.
#ifndef DEEPFREEZE_ENGINE_CAPTURED_SUMS_H_
#define DEEPFREEZE_ENGINE_CAPTURED_SUMS_H_

#include <map>
#include <vector>

#include "base/mutex.h"
#include "engine/job.h"

namespace deepfreeze {

class CapturedSums {
 public:
  // The checksum of the size bytes at data.
  struct Sum {
    const char* data = nullptr;
    uint64_t size = 0;
    uint32_t crc = 0;
  };

  // To be called before any of the size bytes at data change: what is known of them is forgotten.
  void Forget(const char* data, uint64_t size);
  // Notes checksums of bytes that have been forgotten since they changed.
  void Note(const std::vector<Sum>& sums);
  // Gives the job's extents the checksums that are known, marks these extents in job->summed, and forgets all.
  void GiveTo(Job* job);

 private:
  Mutex mutex_;
  std::map<const char*, Sum> sums_ GUARDED_BY(mutex_);  // by data; no two overlap
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_CAPTURED_SUMS_H_
