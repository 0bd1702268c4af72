// rank-RRRRR.record: which extents of the assembled file a rank wrote, and the rank's private bytes. Bytes:
// docs/format.md, "Record".
#ifndef DEEPFREEZE_FORMAT_RECORD_H_
#define DEEPFREEZE_FORMAT_RECORD_H_

#include <string>
#include <vector>

#include "format/identity.h"

namespace deepfreeze {

constexpr size_t kRecordHeader = 128;
constexpr size_t kRecordEntry = 24;
constexpr uint64_t kMaxRecordSize = uint64_t{1}
                                    << 28;  // bytes, room for 11 million extents; bounds what a reader allocates

struct Record {
  Identity identity;
  std::vector<Extent> extents;
  std::string private_data;
};

// *size: bytes of a record with so many extents and private bytes. False if they are more than kMaxRecordSize, or if
// their sum wraps around.
bool RecordSize(uint64_t extents, uint64_t private_size, uint64_t* size);

std::string EncodeRecord(const Record& record);
// Reads a whole file's bytes; `where` is the file that messages name. kCorrupt unless version, sizes, the extents'
// order and the checksum are right.
Status DecodeRecord(const std::string& bytes, const std::string& where, Record* record);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_FORMAT_RECORD_H_
