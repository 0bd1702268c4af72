// The file `records` of a checkpoint: the records of all ranks, one behind the other, in the ranks' order. The commit
// makes it, so that a reader opens one file whatever the number of ranks. Bytes: docs/format.md, "Records".
#ifndef DEEPFREEZE_STORE_RECORDS_H_
#define DEEPFREEZE_STORE_RECORDS_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "store/partial.h"

namespace deepfreeze {

// Writes the file, in the order of the calls: Add for each rank, then Publish. Records may be large, so they are not
// held in memory. Thread-compatible.
class RecordsWriter {
 public:
  // REQUIRES: env outlives this; the directory exists when Add is called. Makes nothing on the disk.
  RecordsWriter(Env* env, const std::string& directory) : env_(env), directory_(directory) {}
  // Appends one record to `records.tmp`.
  Status Add(const std::string& record);
  // Makes the file durable and gives it its name. The name is durable after a sync of the directory. REQUIRES: Add has
  // returned ok, at least once and each time.
  Status Publish();

 private:
  Env* const env_;
  const std::string directory_;
  std::unique_ptr<File> file_;
  uint64_t size_ = 0;
};

// Reads the records in a partial directory: those that have a file of their own, and those of a node's ranks.
// Thread-compatible.
class PartialRecords {
 public:
  // REQUIRES: env and files outlive this.
  PartialRecords(Env* env, const std::string& directory, const RecordFiles& files)
      : env_(env), directory_(directory), files_(files) {}
  // The bytes of a rank's record, which are not looked into; *path is the file that has it, after an error too.
  // REQUIRES: ranks come in their order, for the records of a node are held in memory until the last of them is read.
  // RETURNS kCorrupt if no file has the rank, or its node's file does not consist of records.
  Status Read(uint32_t rank, std::string* bytes, std::string* path);

 private:
  Env* const env_;
  const std::string directory_;
  const RecordFiles& files_;
  std::map<std::string, std::vector<std::string>> nodes_;  // by a node's file: its records
};

// The largest record that is put into a file for all ranks of a node.
constexpr uint64_t kMaxNodeRecord = 65536;

// Removes the records that the ranks have published for a commit which has gathered them. REQUIRES: the commit is
// durable. Errors are ignored: no reader of a committed checkpoint looks at these files.
void RemoveRecords(Env* env, const std::string& run_dir, int64_t step);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_RECORDS_H_
