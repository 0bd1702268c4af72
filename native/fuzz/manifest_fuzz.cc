// manifest.json, as retention and the rescue of a slot read it.
#include "base/crc32c.h"
#include "format/manifest.h"
#include "format/record.h"
#include "fuzz/fuzz.h"

namespace deepfreeze {

bool FuzzOne(const std::string& bytes) {
  Manifest manifest;
  const Status status = DecodeManifest(bytes, "fuzz", &manifest);
  if (!status.ok()) {
    FUZZ_CHECK(status.code() == Code::kCorrupt && !status.message().empty());
    return false;
  }
  FUZZ_CHECK(EncodeManifest(manifest) == bytes);
  FUZZ_CHECK(manifest.identity.step >= 0 && manifest.identity.world == manifest.records.size());
  FUZZ_CHECK(manifest.records.size() < bytes.size());
  uint64_t total = 0;
  for (size_t rank = 0; rank < manifest.records.size(); ++rank) {
    const ManifestRecord& r = manifest.records[rank];
    FUZZ_CHECK(r.rank == rank && r.bytes <= manifest.identity.file_size - total);
    FUZZ_CHECK(r.size <= kMaxRecordSize && r.private_size + r.values_size <= r.size &&
               r.extents <= r.size / kRecordEntry);
    total += r.bytes;
  }
  FUZZ_CHECK(total == manifest.identity.file_size);
  return true;
}

// The last line, which holds the checksum, is made anew; with sizes there is one, whatever the text ended with.
void Repair(bool sizes, std::string* bytes) {
  const std::string key = "  \"crc32c\": \"";
  const size_t at = bytes->rfind(key);
  if (at != std::string::npos) {
    bytes->resize(at);
  } else if (!sizes) {
    return;
  }
  *bytes += key + Hex32(Crc32c(0, bytes->data(), bytes->size())) + "\"\n}\n";
}

}  // namespace deepfreeze
