// rank-RRRRR.record: what a rank wrote into the assembled file, and its private bytes. Bytes: docs/format.md, "Record".
#ifndef DEEPFREEZE_FORMAT_RECORD_H_
#define DEEPFREEZE_FORMAT_RECORD_H_

#include <string>
#include <vector>

#include "format/identity.h"

namespace deepfreeze {

constexpr uint64_t kMaxRecordSize = uint64_t{1} << 32;  // a bound on what a reader allocates

struct Record {
  Identity identity;
  std::vector<Extent> extents;
  std::string private_data;
};

std::string EncodeRecord(const Record& record);
// bytes is the whole file. Strict: version, sizes, order and checksum.
Status DecodeRecord(const std::string& bytes, const std::string& where, Record* record);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_FORMAT_RECORD_H_
