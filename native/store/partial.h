// RUN/step-N.partial-ATTEMPT: where the ranks of one attempt put one step together.
//
// Every rank makes what is missing, in any order, so no rank waits for another. A PartialWriter may be used by several
// threads for writes to file() and direct(); everything else by one at a time.
#ifndef DEEPFREEZE_STORE_PARTIAL_H_
#define DEEPFREEZE_STORE_PARTIAL_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"
#include "format/record.h"

namespace deepfreeze {

std::string PartialPath(const std::string& run_dir, int64_t step, const Id& attempt);

// An error if something else than a directory lies there, a symbolic link above all: nothing is written through it, and
// nothing behind it is taken for this run's. Nothing at all is none.
Status CheckPartial(Env* env, const std::string& directory);

class PartialWriter {
 public:
  // Makes the directory and the model file, at its full size, its blocks reserved.
  Status Open(Env* env, const std::string& run_dir, const Identity& identity);
  File* file() { return file_.get(); }
  // The same file past the page cache; null where that can't be.
  File* direct() { return direct_.get(); }
  // Why not all that is aligned goes past it; "" if it does, and where there is none.
  std::string CachedBecause() const;
  // Makes everything written so far durable and closes the files. Not to be repeated: where a sync has failed, what it
  // was to keep may be gone, and a second one would succeed without it.
  Status Sync();
  // After Sync: publishes the rank's record; from then on its ranges count. May be repeated after a failure. *perhaps:
  // whether others may see the record, also after an error: then rank 0 may commit the step, and only a look at the run
  // directory tells whether it has.
  Status Publish(const Record& record, bool* perhaps);

 private:
  Env* env_ = nullptr;
  std::string directory_;
  std::unique_ptr<File> file_;
  std::unique_ptr<File> direct_;
  Status direct_opened_;
};

// Leaves a marker that tells the other ranks why this one can't finish the step. It need not survive a crash. In a
// directory that exists: whoever only answers another rank's marker must not bring a removed directory back.
Status MarkFailed(Env* env, const std::string& run_dir, const Identity& identity, const std::string& message);

struct PartialState {
  bool exists = false;
  std::vector<uint32_t> present;                     // ranks with a record, sorted
  std::vector<uint32_t> failed;                      // ranks with a marker, sorted
  std::vector<std::pair<uint32_t, uint64_t>> alive;  // ranks with a heartbeat, and its number
};
Status ScanPartial(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, PartialState* state);

// The text of a rank's marker.
std::string ReadFailure(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, uint32_t rank);

// "rank 3", "ranks 1, 3", "ranks 0, 1, ... and 20 more".
std::string NameRanks(const std::vector<uint32_t>& ranks);

// "rank 3's record is missing (3 of 4 present)".
std::string DescribeMissing(const PartialState& state, uint32_t world);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_PARTIAL_H_
