// manifest.json: what makes a directory a checkpoint. Bytes: docs/format.md, "Manifest".
#ifndef DEEPFREEZE_FORMAT_MANIFEST_H_
#define DEEPFREEZE_FORMAT_MANIFEST_H_

#include <string>
#include <vector>

#include "format/identity.h"

namespace deepfreeze {

struct ManifestRecord {
  uint32_t rank = 0;
  uint64_t bytes = 0;  // sum of its extents
  uint64_t extents = 0;
  uint64_t private_size = 0;
  uint64_t size = 0;  // of the record file
  uint32_t crc = 0;   // the record's last four bytes
};

struct Manifest {
  Identity identity;                    // rank unused
  int64_t created = 0;                  // seconds since 1970, UTC
  uint32_t diverged = 0;                // tensors in which ranks that should be alike differ, or last did
  std::vector<ManifestRecord> records;  // one per rank, in order
};

std::string EncodeManifest(const Manifest& manifest);
// Strict: only the very bytes that EncodeManifest makes are a manifest.
Status DecodeManifest(const std::string& bytes, const std::string& where, Manifest* manifest);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_FORMAT_MANIFEST_H_
