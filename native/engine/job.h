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

// How far a job has got. Each stage takes jobs from one phase to the next, in the order of their steps.
enum class Phase {
  kForCapture,   // memory is reserved for it; not submitted yet
  kForLocal,     // for the local writer
  kForTransfer,  // for the transfer
  kForPublish,   // for the publisher: written to the external store, not yet durable
  kForCommit,    // for the committer: this rank's part is durable and its record published
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
  std::string values;  // a section of named values
  Status lost;         // why there is no capture, so that the step fails; ok if there is one

  // The engine's own memory that the capture lies in; null if it lies in the caller's. It is slot number `slot` if
  // home_is_slot, else buffer number `buffer`. Set when the memory is reserved.
  char* home = nullptr;
  uint64_t home_size = 0;
  // Keeps alive the memory of capture areas that regions lie in, until the job is released.
  std::vector<std::shared_ptr<Pages>> memory;

  // Used only by the stage that works on the job.
  std::vector<Extent> extents;
  std::vector<const char*> sources;        // memory of each extent
  std::vector<size_t> runs;                // first extent of each run, and the number of extents; see CutExtents
  std::vector<uint64_t> places;            // where each extent begins in the job's slot
  bool checksummed = false;                // the extents have their checksums
  std::unique_ptr<PartialWriter> partial;  // from the transfer to the publisher

  // Guarded by Progress's mutex.
  std::unique_ptr<Heartbeat> heartbeat;  // null until the job takes long
  uint64_t beat_us = 0;                  // time of the last beat

  // Guarded by JobTable's mutex.
  Phase phase = Phase::kForLocal;
  bool running = false;  // a stage works on it
  // A job that was captured in a slot is at two stages at once: the local writer computes its checksums (checking)
  // while the transfer writes it.
  bool checking = false;
  bool checked = false;  // the local writer has finished; on_slot says whether the slot is whole
  bool on_slot = false;  // its slot is whole
  int slot = -1;         // number of its slot, or -1
  bool home_is_slot = false;
  int buffer = -1;              // number of its buffer of capture memory, or -1
  bool give_up_memory = false;  // its memory is wanted: from now on the transfer reads the slot
  uint32_t memory_users = 0;    // chunks that are being read from its memory
  bool released = false;        // its memory is no longer read
  bool changed = false;         // since the last poll
  int level = 0;
  double local_s = -1;
  double written_s = -1;
  double external_s = -1;
  Divergence divergence;
  Status failure;
  std::string waits_for;  // what it waits for, for messages: "waits for its commit (...)"

  // Whether it holds memory that in_flight bounds; a slot is the local tier's.
  bool in_flight() const { return !released && !home_is_slot; }
  bool busy() const { return running || checking; }
  bool done() const { return phase == Phase::kCommitted || phase == Phase::kFailed; }
};

using JobRef = std::shared_ptr<Job>;

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_JOB_H_
