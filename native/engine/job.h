// One checkpoint on its way from the caller's memory to its commit.
#ifndef DEEPFREEZE_ENGINE_JOB_H_
#define DEEPFREEZE_ENGINE_JOB_H_

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/pages.h"
#include "base/status.h"
#include "engine/buffer_parts.h"
#include "engine/level_state.h"
#include "engine/slot_pool.h"
#include "format/slot.h"
#include "store/comparison.h"
#include "store/shard_writer.h"

namespace deepfreeze {

struct Region {
  const char* data = nullptr;
  uint64_t size = 0;
  uint64_t file_offset = 0;
};

// This rank's bytes of one step, and where they lie. It owns that memory: it keeps memory of capture areas alive, and
// has a buffer or a slot of the engine's to itself, until the job table has it leave its memory.
struct Shard {
  // Set at submit and never changed.
  int64_t step = 0;
  uint64_t nbytes = 0;
  uint64_t submitted_us = 0;
  double copy_s = 0;  // as in df_report
  std::vector<Region> regions;
  std::string private_data;
  std::string values;  // a section of named values

  // Where the capture lies: in memory of the engine's at `base` unless home is kCaller.
  Home home = Home::kCaller;
  char* base = nullptr;
  uint64_t base_size = 0;
  int buffer = SlotPool::kNoSlot;  // number of its buffer, if home is kBuffer
  int slot = SlotPool::kNoSlot;  // number of its slot, or of the one that it had; set before a level's thread reads it
  std::vector<std::shared_ptr<Pages>> memory;  // of capture areas that regions lie in

  std::vector<const char*> sources;  // memory of each extent
  std::vector<bool> summed;          // which extents got their checksum from the capture; as long as extents
  std::vector<size_t> runs;          // first extent of each run, and the number of extents; see CutExtents
  std::vector<size_t> order;         // the numbers of the runs, in the order in which they are written
  size_t first_part = 0;             // of the buffer, which the capture wrote to first
  SlotLayout layout;                 // of the job's slot

  // Their sizes and places are set at submit. Checksums that the capture has not given: the local level sets them,
  // and nobody else reads them before it has settled. If it has failed, the transfer sets them.
  std::vector<Extent> extents;

  // Used by the external level alone.
  bool checksummed = false;            // the transfer knows that the extents have their checksums
  std::unique_ptr<ShardWriter> shard;  // from the transfer to the publisher
  bool durable = false;                // committed, and the name is synced

  // The newer step for which this one is given up; -1: it is not. The levels' threads end their work on it then.
  std::atomic<int64_t> superseded_by{-1};

  // How many bytes are written to the slot, or have their checksums there, and to the external store.
  std::atomic<uint64_t> local_bytes{0};
  std::atomic<uint64_t> external_bytes{0};

  // Guarded by Progress's mutex.
  uint64_t beats = 0;    // heartbeats so far
  uint64_t beat_us = 0;  // time of the last one
};

// What a job is to one level. `stage`: which of the level's stages it is in, or waits for.
struct Standing {
  LevelState state = LevelState::kNone;
  uint8_t stage = 0;
  std::string waits_for;  // what its thread waits for, for messages: "waits for its commit (...)"
};

struct Job : Shard {
  Status lost;  // why there is no capture, so that the step fails; ok if there is one. Set at submit

  // The rest is guarded by JobTable's mutex.
  std::vector<Standing> at;  // one for each level
  uint32_t readers = 0;      // levels that keep its memory, and chunks that are being read from it
  BufferParts parts;         // of its buffer; empty unless home is kBuffer
  bool unreported = false;   // something has changed since the last poll
  double local_s = -1;
  double written_s = -1;
  double external_s = -1;
  double cpu_s = -1;
  Divergence divergence;
  Status failure;

  // Whether its fate is known: it is committed, or has failed.
  bool over() const { return Settled(at[kExternal].state); }
  bool failed() const { return at[kExternal].state == LevelState::kFailed; }
  // Whether it was given up for a newer one. Then it has failed too, as far as the levels know.
  bool superseded() const { return failure.code() == Code::kSuperseded; }
  // Whether its memory is no longer read.
  bool released() const { return at[kCaptured].state != LevelState::kDone && readers == 0; }
  // Whether it holds memory that in_flight bounds; a slot is the local tier's.
  bool in_flight() const { return !released() && home != Home::kSlot; }
  // Whether a thread of a level works on it.
  bool busy() const {
    return std::any_of(at.begin(), at.end(), [](const Standing& one) { return one.state == LevelState::kRunning; });
  }
  // Its slot is whole.
  bool on_slot() const { return at[kLocal].state == LevelState::kDone; }
};

using JobRef = std::shared_ptr<Job>;

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_JOB_H_
