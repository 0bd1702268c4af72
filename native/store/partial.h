// RUN/step-N.partial-ATTEMPT, the partial directory: in it the ranks of one attempt assemble the checkpoint of one
// step.
//
// Each rank makes the directory and the model file if they are missing, so no rank waits for another. The rank that has
// made the model file reserves its blocks, for all.
#ifndef DEEPFREEZE_STORE_PARTIAL_H_
#define DEEPFREEZE_STORE_PARTIAL_H_

#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "format/names.h"
#include "format/record.h"
#include "store/roll.h"
#include "store/shard_writer.h"

namespace deepfreeze {

std::string PartialPath(const std::string& run_dir, int64_t step, const Id& attempt);

// RETURNS ok if `directory` is a directory or does not exist; kInvalid if it is anything else, above all a symbolic
// link: then nothing must be written to or read from the path behind it.
Status CheckPartial(Env* env, const std::string& directory);

// The writer of one rank's shard of one step, in the model file of the partial directory.
class PartialWriter final : public ShardWriter {
 public:
  // cached: as for PosixStore. REQUIRES: env outlives this.
  PartialWriter(Env* env, const std::string& run_dir, const Identity& identity, bool cached = false);

  // Makes the directory and the model file if they are missing. If it has made the file, gives it its full size and
  // reserves its blocks. RETURNS kNoSpace if there is no room for them; kInvalid as CheckPartial.
  Status Begin(bool* kept) override;
  Status Write(uint64_t offset, const void* data, size_t n) override;
  bool direct() const override { return direct_ != nullptr; }
  Status WriteDirect(uint64_t offset, const void* data, size_t n) override;
  std::string CachedBecause() const override;
  void StartWriteback(uint64_t offset, uint64_t n) override { file_->StartWriteback(offset, n); }
  Status Seal() override;

 private:
  Env* const env_;
  const std::string directory_;
  const uint64_t size_;  // bytes of the model file
  const bool cached_;
  // Whether what was written is known to be in the file that was open.
  bool Kept();

  bool made_ = false;  // by this rank
  // From Begin to Seal.
  std::unique_ptr<File> file_;
  std::unique_ptr<File> direct_;  // the same file, opened with kDirect; null if the file system can't do that
  Status direct_opened_;
  std::unique_ptr<File> witness_;  // the same file, if there is no direct_ and somebody wants to know what was kept
  uint64_t number_ = 0;            // of the file that was written to last; 0 if nobody wants to know
  bool lost_ = false;              // something that was written may not be in it
};

// Writes this rank's failure marker, which tells the other ranks why this rank can't finish the step. The marker may be
// lost in a crash. The partial directory is not made, and without it this is an error: a rank that merely answers
// another rank's marker must not bring back a directory that rank 0 has removed.
Status MarkFailed(Env* env, const std::string& run_dir, const Identity& identity, const std::string& message);

// The files that have the records in a partial directory.
struct RecordFiles {
  std::vector<uint32_t> own;     // ranks that have a file of their own, sorted
  std::vector<NodeRanks> nodes;  // of each other file: the ranks of a node, whose records it has
};
// Lists a partial directory. RETURNS ok, with state->exists false, for a missing one. files: may be null.
Status ScanPartial(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, PartialState* state,
                   RecordFiles* files = nullptr);

// Writes the message of a failure to a file, for people and for other ranks; at least its name, if there is no room for
// more. Not synced: it may be lost in a crash.
Status WriteFailure(Env* env, const std::string& path, const std::string& message);
// *message: what such a file says, "" if there was no room for more than its name. RETURNS an error if it can't be
// read.
Status ReadFailure(Env* env, const std::string& path, std::string* message);
// The same for people: if it can't be read, or says nothing, the reason of that. Never "".
std::string DescribeFailure(Env* env, const std::string& path);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_PARTIAL_H_
