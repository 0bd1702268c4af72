// manifest.json: what makes a directory a checkpoint. Bytes: docs/format.md, "Manifest".
#ifndef DEEPFREEZE_FORMAT_MANIFEST_H_
#define DEEPFREEZE_FORMAT_MANIFEST_H_

#include <string>
#include <vector>

#include "format/identity.h"

namespace deepfreeze {

struct ManifestRecord {
  uint32_t rank = 0;
  uint64_t bytes = 0;    // sum of the sizes of the rank's extents
  uint64_t extents = 0;  // how many they are
  uint64_t private_size = 0;
  uint64_t values_size = 0;  // of its section of named values
  uint64_t size = 0;         // bytes of the record
  uint32_t crc = 0;          // the record's last four bytes
};

struct Manifest {
  uint32_t version = kFormatVersion;
  Identity identity;      // without the rank
  int64_t created = 0;    // time of the commit, seconds since 1970, UTC
  uint32_t diverged = 0;  // how many replicated tensors differed between the ranks, at this step or when
                          // the ranks were last compared before
  // The named values: a JSON object on one line. Their text is kept as it is and not looked into.
  std::string values = "{}";
  std::vector<ManifestRecord> records;  // one per rank, in the ranks' order
};

// REQUIRES: manifest.values is a JSON object on one line; the records come in the ranks' order.
std::string EncodeManifest(const Manifest& manifest);
// *values: the manifest's named values that rank 0's record brings along, as its value `manifest`; it stays as it is if
// the record has none. `section`: the record's named values; `where`: the file that messages name. REQUIRES:
// CheckNamedValues has accepted the section. RETURNS kCorrupt for text that can't be one line with a JSON object in
// ASCII; the text is not looked into further.
Status TakeManifestValues(const std::string& section, const std::string& where, std::string* values);

// Reads a whole file's bytes; `where` is the file that messages name. RETURNS kCorrupt unless they are exactly the
// bytes that EncodeManifest makes of *manifest, and its numbers fit together. After an error *manifest is not to be
// used.
Status DecodeManifest(const std::string& bytes, const std::string& where, Manifest* manifest);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_FORMAT_MANIFEST_H_
