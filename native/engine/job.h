// One checkpoint on its way from the caller's memory to its commit.
#ifndef DEEPFREEZE_ENGINE_JOB_H_
#define DEEPFREEZE_ENGINE_JOB_H_

#include <memory>
#include <string>
#include <vector>

#include "base/pages.h"
#include "base/status.h"
#include "format/identity.h"
#include "store/commit.h"
#include "store/heartbeat.h"
#include "store/partial.h"

namespace deepfreeze {

struct Region {
  const char* data = nullptr;
  uint64_t size = 0;
  uint64_t file_offset = 0;
};

// Where a job stands. Each stage takes jobs from one phase to the next, in the order of their steps.
enum class Phase {
  kForCapture,   // its memory is reserved; not submitted yet
  kForLocal,     // waits for the local writer
  kForTransfer,  // waits for the transfer
  kForPublish,   // written, not yet durable
  kForCommit,    // this rank's part is on the external store
  kCommitted,
  kFailed,
};

struct Job {
  // Set at submit and never changed.
  int64_t step = 0;
  uint64_t nbytes = 0;
  uint64_t submitted_us = 0;
  std::vector<Region> regions;
  std::string private_data;

  // The engine's own memory that the capture lies in, if it does: a slot's if `slot` is set, else buffer number
  // `buffer`. Bound when reserved.
  char* home = nullptr;
  uint64_t home_size = 0;
  // Memory of capture areas that regions lie in, until the job is released.
  std::vector<std::shared_ptr<Pages>> memory;

  // Used by the stage that works on the job, and by no one else.
  std::vector<Extent> extents;
  std::vector<const char*> sources;  // of each extent, in the caller's memory
  std::vector<size_t> runs;          // of extents written together: where each begins, and the end of the last
  std::vector<uint64_t> places;      // of each extent, in its slot
  bool checksummed = false;
  std::unique_ptr<PartialWriter> partial;  // from the transfer to the publisher

  // Guarded by Progress's mutex.
  std::unique_ptr<Heartbeat> heartbeat;  // once the job takes long
  uint64_t beat_us = 0;                  // when it was shown last

  // Guarded by JobTable's mutex.
  Phase phase = Phase::kForLocal;
  bool running = false;  // a stage works on it
  // What was captured in a slot gets its checksums from the local writer while the transfer is on its way.
  bool checking = false;
  bool checked = false;  // that is over; on_slot says whether it went well
  bool on_slot = false;  // its slot is whole
  int slot = -1;         // which one, or -1
  bool home_is_slot = false;
  int buffer = -1;
  bool give_up_memory = false;
  uint32_t memory_users = 0;  // chunks being read from the caller's memory
  bool released = false;
  bool changed = false;  // since the last poll
  int level = 0;
  double local_s = -1;
  double written_s = -1;
  double external_s = -1;
  Divergence divergence;
  Status failure;
  std::string waits_for;  // for messages

  // Holds memory of the training process; a slot is the local tier's.
  bool in_flight() const { return !released && !home_is_slot; }
  bool busy() const { return running || checking; }
  bool done() const { return phase == Phase::kCommitted || phase == Phase::kFailed; }
};

using JobRef = std::shared_ptr<Job>;

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_JOB_H_
