// Which checkpoint and rank a record or slot belongs to, and the extents that it lists. Bytes: docs/format.md,
// "Identity block". Like everything in format/, this does no I/O and may be called from any thread.
#ifndef DEEPFREEZE_FORMAT_IDENTITY_H_
#define DEEPFREEZE_FORMAT_IDENTITY_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/coding.h"
#include "base/status.h"

namespace deepfreeze {

// Of records, slots, manifests. Version 1 is read and never written.
constexpr uint32_t kFormatVersion = 2;
constexpr uint32_t kFirstVersion = 1;
constexpr size_t kIdentityOffset = 16;
constexpr size_t kIdentitySize = 96;
// The unit that one rank alone writes to: a page of the page cache, which has this size on most machines.
constexpr uint64_t kPageSize = 4096;
// The largest offset that system calls take. As no checked file is longer, a sum of two of its offsets and sizes can't
// wrap around in 64 bits.
constexpr uint64_t kMaxFileSize = ~uint64_t{0} >> 1;

struct Identity {
  Id run_id{};
  Id attempt{};
  Digest structure{};
  int64_t step = 0;
  uint32_t rank = 0;
  uint32_t world = 1;
  uint64_t file_size = 0;  // of the assembled file
  uint32_t hashes = 0;     // number of replica checksums (u32) at the end of the private bytes

  // Whether both are of the same checkpoint: all fields but the rank are equal.
  bool SameCheckpoint(const Identity& other) const;
};

// A contiguous range of the assembled file with the checksum of its bytes.
struct Extent {
  uint64_t file_offset = 0;
  uint64_t size = 0;
  uint32_t crc = 0;
};

// Writes kIdentitySize bytes to `to`, which need not be aligned; extents is the number of extents.
void EncodeIdentity(const Identity& identity, uint32_t extents, char* to);
// Reads kIdentitySize bytes. RETURNS kCorrupt if a field is out of range. Here and below `where` is the file that
// messages name.
Status DecodeIdentity(const char* from, const std::string& where, Identity* identity, uint32_t* extents);

// RETURNS ok if one rank's extents are sorted by offset, do not overlap, are not empty and lie inside the file; else
// kCorrupt.
Status CheckExtents(const std::vector<Extent>& extents, uint64_t file_size, const std::string& where);

// RETURNS ok if one rank's extents cover each page of the file that they touch wholly, or up to the file's end. Then no
// two ranks write to one page, of which clients of a network file system might lose bytes. Otherwise kInvalid, and not
// kCorrupt: a checkpoint that was written otherwise can be read all the same. REQUIRES: they are sorted, do not overlap
// and lie inside the file; empty ones are allowed.
Status CheckWholePages(const std::vector<Extent>& extents, uint64_t file_size, const std::string& where);

// RETURNS ok if the extents of all ranks together, in whatever order, cover every byte of [0, file_size) exactly once;
// else kCorrupt. REQUIRES: CheckExtents has accepted those of each rank.
Status CheckCoverage(std::vector<Extent> extents, uint64_t file_size, const std::string& where);

// The sum of the extents' sizes. REQUIRES: CheckExtents has accepted them, so that the sum fits into 64 bits.
uint64_t TotalBytes(const std::vector<Extent>& extents);

// RETURNS ok for version 1 and for kFormatVersion, else kCorrupt.
Status CheckVersion(uint32_t version, const std::string& where);

// RETURNS kCorrupt with the message "RUN/x: expected ...; found .... Use another checkpoint; ...", for bytes that break
// the format.
Status Malformed(const std::string& where, const std::string& expected, const std::string& found);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_FORMAT_IDENTITY_H_
