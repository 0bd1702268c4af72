// The file `records` of a checkpoint: the records of all ranks, one behind the other, in the ranks' order. The commit
// makes it, so that a reader opens one file whatever the number of ranks. Bytes: docs/format.md, "Records".
#ifndef DEEPFREEZE_STORE_RECORDS_H_
#define DEEPFREEZE_STORE_RECORDS_H_

#include <memory>
#include <string>

#include "base/env.h"

namespace deepfreeze {

// Writes the file, in the order of the calls: Add for each rank, then Publish. Records may be large, so they are not
// held in memory.
class RecordsWriter {
 public:
  // env must outlive this. Makes nothing on the disk.
  RecordsWriter(Env* env, const std::string& directory) : env_(env), directory_(directory) {}
  // Appends one record to `records.tmp`.
  Status Add(const std::string& record);
  // Makes the file durable and gives it its name. The name is durable after a sync of the directory.
  Status Publish();

 private:
  Env* const env_;
  const std::string directory_;
  std::unique_ptr<File> file_;
  uint64_t size_ = 0;
};

// Removes the records that the ranks have published for a commit which has gathered them. To be called when the commit
// is durable. Errors are ignored: no reader of a committed checkpoint looks at these files.
void RemoveRecords(Env* env, const std::string& run_dir, int64_t step);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_RECORDS_H_
