// rank-RRRRR.record: what a rank wrote into the assembled file, and its private bytes. Bytes: docs/format.md, "Record".
#ifndef DEEPFREEZE_FORMAT_RECORD_H_
#define DEEPFREEZE_FORMAT_RECORD_H_

#include <string>
#include <vector>

#include "format/identity.h"

namespace deepfreeze {

constexpr size_t kRecordHeader = 128;
constexpr size_t kRecordEntry = 24;
constexpr uint64_t kMaxRecordSize = uint64_t{1} << 28;  // a bound on what a reader allocates; 11 million extents

struct Record {
  Identity identity;
  std::vector<Extent> extents;
  std::string private_data;
};

// False if that is more than kMaxRecordSize, or can't be a number of bytes at all.
bool RecordSize(uint64_t extents, uint64_t private_size, uint64_t* size);

std::string EncodeRecord(const Record& record);
// bytes is the whole file. Strict: version, sizes, order and checksum.
Status DecodeRecord(const std::string& bytes, const std::string& where, Record* record);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_FORMAT_RECORD_H_
