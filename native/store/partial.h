// RUN/step-N.partial-ATTEMPT, the partial directory: in it the ranks of one attempt assemble the checkpoint of one
// step.
//
// Each rank makes the directory and the model file if they are missing, so no rank waits for another. The rank that has
// made the model file reserves its blocks, for all.
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

// Ok if `directory` is a directory or does not exist. kInvalid if it is anything else, above all a symbolic link: then
// nothing must be written to or read from the path behind it.
Status CheckPartial(Env* env, const std::string& directory);

// One rank's bytes of one step. Writes through file() and direct() may be made by several threads at once; all other
// calls are made by one thread at a time. Order of the calls: Open, writes, Sync.
class PartialWriter {
 public:
  // Makes the directory and the model file if they are missing. If it has made the file, gives it its full size and
  // reserves its blocks. May be repeated after a failure, also of the writes. env must outlive this.
  Status Open(Env* env, const std::string& run_dir, const Identity& identity);
  // The model file. Owned by this; null before Open and after Sync, as is direct().
  File* file() { return file_.get(); }
  // The same file, opened so that writes go past the page cache; null if the file system can't do that.
  File* direct() { return direct_.get(); }
  // Why direct writes go through the page cache all the same. "" if they do not, or if the file system has no disk
  // behind its cache (tmpfs).
  std::string CachedBecause() const;
  // Makes everything written so far durable and closes the files. Must not be repeated: after a failed sync the data
  // may be lost, and a second sync would succeed without it.
  Status Sync();

 private:
  Env* env_ = nullptr;
  std::string directory_;
  bool made_ = false;  // by this rank
  std::unique_ptr<File> file_;
  std::unique_ptr<File> direct_;
  Status direct_opened_;
};

// Writes this rank's failure marker, which tells the other ranks why this rank can't finish the step. The marker may be
// lost in a crash. The partial directory must exist and is not made: a rank that merely answers another rank's marker
// must not bring back a directory that rank 0 has removed.
Status MarkFailed(Env* env, const std::string& run_dir, const Identity& identity, const std::string& message);

struct PartialState {
  bool exists = false;
  std::vector<uint32_t> present;                     // ranks with a record, sorted
  std::vector<uint32_t> failed;                      // ranks with a marker, sorted
  std::vector<std::pair<uint32_t, uint64_t>> alive;  // ranks with a heartbeat, and its number; in no order
};
// Lists a partial directory. Of a missing one the status is ok and state->exists false.
Status ScanPartial(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, PartialState* state);

// Writes the message of a failure to a file, for people and for other ranks; at least its name, if there is no room for
// more. Not synced: it may be lost in a crash.
Status WriteFailure(Env* env, const std::string& path, const std::string& message);
// The message in such a file; if it can't be read, the reason of that.
std::string ReadFailure(Env* env, const std::string& path);

// "rank 3", "ranks 1, 3", "ranks 0, 1, ... and 20 more".
std::string NameRanks(const std::vector<uint32_t>& ranks);

// "rank 3's record is missing (3 of 4 present)".
std::string DescribeMissing(const PartialState& state, uint32_t world);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_PARTIAL_H_
