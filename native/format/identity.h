// What a record or slot belongs to, and the extents it lists. Bytes: docs/format.md, "Identity block".
#ifndef DEEPFREEZE_FORMAT_IDENTITY_H_
#define DEEPFREEZE_FORMAT_IDENTITY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/coding.h"
#include "base/status.h"

namespace deepfreeze {

constexpr uint32_t kFormatVersion = 1;
constexpr size_t kIdentityOffset = 16;
constexpr size_t kIdentitySize = 96;
// What one rank writes to and no other: a page of the system's cache, which has that size on most machines.
constexpr uint64_t kPageSize = 4096;
// What the system's calls take as an offset. Below it no sum of offsets and sizes of a checked file can wrap around.
constexpr uint64_t kMaxFileSize = ~uint64_t{0} >> 1;

struct Identity {
  Id run_id{};
  Id attempt{};
  Digest structure{};
  int64_t step = 0;
  uint32_t rank = 0;
  uint32_t world = 1;
  uint64_t file_size = 0;
  uint32_t hashes = 0;  // u32 checksums at the end of the private bytes, of whole tensors that all ranks hold alike

  // The same checkpoint: everything but the rank.
  bool SameCheckpoint(const Identity& other) const;
};

// A contiguous range of the assembled file with the checksum of its bytes.
struct Extent {
  uint64_t file_offset = 0;
  uint64_t size = 0;
  uint32_t crc = 0;
};

// Writes kIdentitySize bytes.
void EncodeIdentity(const Identity& identity, uint32_t extents, char* to);
// where names the file in messages.
Status DecodeIdentity(const char* from, const std::string& where, Identity* identity, uint32_t* extents);

// Sorted, not overlapping, not empty, inside the file.
Status CheckExtents(const std::vector<Extent>& extents, uint64_t file_size, const std::string& where);

// Whether one rank's extents (sorted, not overlapping) hold every page of the file that they touch whole, or up to the
// file's end. Then no two ranks write to one page: clients of a network file system that do may lose bytes of it.
// Extents may be empty here. kInvalid: a checkpoint that was written otherwise is as readable as any other.
Status CheckWholePages(const std::vector<Extent>& extents, uint64_t file_size, const std::string& where);

// Of all ranks together: every byte of [0, file_size) exactly once. The order of extents does not matter.
Status CheckCoverage(std::vector<Extent> extents, uint64_t file_size, const std::string& where);

uint64_t TotalBytes(const std::vector<Extent>& extents);

// "RUN/x: expected ...; found .... Remove ..." for bytes that break the format.
Status Malformed(const std::string& where, const std::string& expected, const std::string& found);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_FORMAT_IDENTITY_H_
