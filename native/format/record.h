// rank-RRRRR.record: which extents of the assembled file a rank wrote, and the rank's private bytes. Bytes:
// docs/format.md, "Record".
#ifndef DEEPFREEZE_FORMAT_RECORD_H_
#define DEEPFREEZE_FORMAT_RECORD_H_

#include <string>
#include <vector>

#include "format/identity.h"

namespace deepfreeze {

constexpr size_t kRecordHeader = 136;
constexpr size_t kRecordHeader1 = 128;     // of version 1, which has no named values
constexpr size_t kRecordSizeOffset = 120;  // of the record's size, u64
constexpr size_t kRecordEntry = 24;
// Bytes, room for 11 million extents. Bounds what a reader allocates.
constexpr uint64_t kMaxRecordSize = uint64_t{1} << 28;

struct Record {
  Identity identity;
  std::vector<Extent> extents;
  std::string private_data;
  std::string values;  // a section of named values, "" for none
};

// *size: bytes of a record with so many extents, and private bytes and named values of so many bytes. RETURNS false if
// they are more than kMaxRecordSize, or if their sum wraps around; *size stays as it is then.
bool RecordSize(uint64_t extents, uint64_t private_size, uint64_t values_size, uint64_t* size);

// The bytes of a record of version 2. REQUIRES: RecordSize accepts its sizes; the private bytes have room for the
// identity's checksums; CheckExtents and CheckNamedValues accept the rest. DecodeRecord refuses any other record.
std::string EncodeRecord(const Record& record);
// Reads a whole record's bytes, of version 1 or 2; `where` is the file that messages name. RETURNS kCorrupt unless
// version, sizes, the extents' order, the named values and the checksum are right. After an error *record is not to be
// used.
Status DecodeRecord(const std::string& bytes, const std::string& where, Record* record);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_FORMAT_RECORD_H_
