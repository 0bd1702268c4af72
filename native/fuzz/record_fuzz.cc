// rank-RRRRR.record, as the commit and the rescue of a slot read it.
#include "base/crc32c.h"
#include "format/record.h"
#include "fuzz/fuzz.h"

namespace deepfreeze {

bool FuzzOne(const std::string& bytes) {
  Record record;
  const Status status = DecodeRecord(bytes, "fuzz", &record);
  if (!status.ok()) {
    FUZZ_CHECK(status.code() == Code::kCorrupt && !status.message().empty());
    return false;
  }
  // What was read is written as version 2, and then the same again.
  const std::string again = EncodeRecord(record);
  FUZZ_CHECK(Get32(bytes.data() + 8) == kFirstVersion || again == bytes);
  Record back;
  FUZZ_CHECK(DecodeRecord(again, "fuzz", &back).ok() && EncodeRecord(back) == again);
  FUZZ_CHECK(record.values.size() < bytes.size());
  FUZZ_CHECK(record.identity.step >= 0 && record.identity.rank < record.identity.world);
  FUZZ_CHECK(record.private_data.size() + kRecordEntry * record.extents.size() < bytes.size());
  FUZZ_CHECK(uint64_t{record.identity.hashes} * 4 <= record.private_data.size());
  CheckSortedInside(record.extents, record.identity.file_size);
  FUZZ_CHECK(TotalBytes(record.extents) <= record.identity.file_size);
  // As in the commit: one rank's extents alone, also if they don't cover the file.
  (void)CheckCoverage(record.extents, record.identity.file_size, "fuzz").ok();
  return true;
}

void Repair(bool sizes, std::string* bytes) {
  const size_t size = bytes->size();
  if (size < kRecordHeader1 + 4) return;
  char* to = bytes->data();
  const bool first = Get32(to + 8) == kFirstVersion;
  const uint64_t header = first ? kRecordHeader1 : kRecordHeader;
  if (sizes && size >= header + 4) {
    const uint64_t most = (size - header - 4) / kRecordEntry;
    const uint64_t extents = Get32(to + 104) % (most + 1);
    const uint64_t left = size - header - 4 - kRecordEntry * extents;
    const uint64_t values_size = first ? 0 : Get64(to + 128) % (left + 1);
    const uint64_t private_size = left - values_size;
    Put32(to + 12, static_cast<uint32_t>(header));
    if (!first) Put64(to + 128, values_size);
    Put32(to + 104, static_cast<uint32_t>(extents));
    Put32(to + 108, static_cast<uint32_t>(Get32(to + 108) % (private_size / 4 + 1)));
    Put64(to + 112, private_size);
    Put64(to + 120, size);
  }
  Put32(to + size - 4, Crc32c(0, to, size - 4));
}

}  // namespace deepfreeze
