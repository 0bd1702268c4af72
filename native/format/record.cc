#include "format/record.h"

#include <cstring>

#include "base/crc32c.h"
#include "format/named_values.h"

namespace deepfreeze {
namespace {

constexpr char kMagic[] = "DFRECORD";

}  // namespace

bool RecordSize(uint64_t extents, uint64_t private_size, uint64_t values_size, uint64_t* size) {
  constexpr uint64_t kRoom = kMaxRecordSize - kRecordHeader - 4;
  if (extents > kRoom / kRecordEntry || private_size > kRoom - kRecordEntry * extents) return false;
  if (values_size > kRoom - kRecordEntry * extents - private_size) return false;
  *size = kRecordHeader + kRecordEntry * extents + private_size + values_size + 4;
  return true;
}

std::string EncodeRecord(const Record& record) {
  const size_t n = record.extents.size();
  const size_t size = kRecordHeader + kRecordEntry * n + record.private_data.size() + record.values.size() + 4;
  std::string bytes(size, '\0');
  char* to = bytes.data();
  std::memcpy(to, kMagic, 8);
  Put32(to + 8, kFormatVersion);
  Put32(to + 12, kRecordHeader);
  EncodeIdentity(record.identity, static_cast<uint32_t>(n), to + kIdentityOffset);
  Put64(to + 112, record.private_data.size());
  Put64(to + 120, size);
  Put64(to + 128, record.values.size());
  char* entry = to + kRecordHeader;
  for (const Extent& extent : record.extents) {
    Put64(entry, extent.file_offset);
    Put64(entry + 8, extent.size);
    Put32(entry + 16, extent.crc);
    entry += kRecordEntry;
  }
  std::memcpy(entry, record.private_data.data(), record.private_data.size());
  std::memcpy(entry + record.private_data.size(), record.values.data(), record.values.size());
  Put32(to + size - 4, Crc32c(0, to, size - 4));
  return bytes;
}

Status DecodeRecord(const std::string& bytes, const std::string& where, Record* record) {
  const char* from = bytes.data();
  const uint64_t size = bytes.size();
  if (size < kRecordHeader1 + 4 || std::memcmp(from, kMagic, 8) != 0) {
    return Malformed(where, "a record", "other bytes, or too few of them");
  }
  const uint32_t version = Get32(from + 8);
  DF_RETURN_IF_ERROR(CheckVersion(version, where));
  const size_t header = version == kFirstVersion ? kRecordHeader1 : kRecordHeader;
  if (Get32(from + 12) != header || size < header + 4) {
    return Malformed(where, "a header of " + std::to_string(header) + " bytes", std::to_string(Get32(from + 12)));
  }
  const uint32_t crc = Crc32c(0, from, size - 4);
  if (Get32(from + size - 4) != crc) {
    return Malformed(where, "checksum " + Hex32(Get32(from + size - 4)), Hex32(crc));
  }
  uint32_t n = 0;
  DF_RETURN_IF_ERROR(DecodeIdentity(from + kIdentityOffset, where, &record->identity, &n));
  const uint64_t private_size = Get64(from + 112);
  const uint64_t values_size = version == kFirstVersion ? 0 : Get64(from + 128);
  uint64_t wanted = 0;
  if (!RecordSize(n, private_size, values_size, &wanted) || wanted - kRecordHeader + header != size ||
      Get64(from + 120) != size || uint64_t{record->identity.hashes} * 4 > private_size) {
    return Malformed(where, "a size that agrees with its counts", std::to_string(size) + " bytes");
  }
  record->extents.resize(n);
  const char* entry = from + header;
  for (Extent& extent : record->extents) {
    extent = Extent{Get64(entry), Get64(entry + 8), Get32(entry + 16)};
    if (Get32(entry + 20) != 0) return Malformed(where, "zero after an extent", "something else");
    entry += kRecordEntry;
  }
  record->private_data.assign(entry, private_size);
  record->values.assign(entry + private_size, values_size);
  DF_RETURN_IF_ERROR(CheckNamedValues(record->values, where));
  return CheckExtents(record->extents, record->identity.file_size, where);
}

}  // namespace deepfreeze
