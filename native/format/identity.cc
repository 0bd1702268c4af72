#include "format/identity.h"

#include <algorithm>
#include <cstring>

namespace deepfreeze {

bool Identity::SameCheckpoint(const Identity& other) const {
  return run_id == other.run_id && attempt == other.attempt && structure == other.structure && step == other.step &&
         world == other.world && file_size == other.file_size && hashes == other.hashes;
}

void EncodeIdentity(const Identity& identity, uint32_t extents, char* to) {
  std::memcpy(to, identity.run_id.data(), 16);
  std::memcpy(to + 16, identity.attempt.data(), 16);
  std::memcpy(to + 32, identity.structure.data(), 32);
  Put64(to + 64, static_cast<uint64_t>(identity.step));
  Put32(to + 72, identity.rank);
  Put32(to + 76, identity.world);
  Put64(to + 80, identity.file_size);
  Put32(to + 88, extents);
  Put32(to + 92, identity.hashes);
}

Status DecodeIdentity(const char* from, const std::string& where, Identity* identity, uint32_t* extents) {
  std::memcpy(identity->run_id.data(), from, 16);
  std::memcpy(identity->attempt.data(), from + 16, 16);
  std::memcpy(identity->structure.data(), from + 32, 32);
  identity->step = static_cast<int64_t>(Get64(from + 64));
  identity->rank = Get32(from + 72);
  identity->world = Get32(from + 76);
  identity->file_size = Get64(from + 80);
  *extents = Get32(from + 88);
  identity->hashes = Get32(from + 92);
  if (identity->step < 0) return Malformed(where, "a step of 0 or more", std::to_string(identity->step));
  if (identity->rank >= identity->world) {
    return Malformed(where, "a rank below the world size",
                     "rank " + std::to_string(identity->rank) + " of " + std::to_string(identity->world));
  }
  if (identity->file_size == 0 || identity->file_size > kMaxFileSize) {
    return Malformed(where, "a model file of 1 to " + std::to_string(kMaxFileSize) + " bytes",
                     std::to_string(identity->file_size));
  }
  return {};
}

Status CheckExtents(const std::vector<Extent>& extents, uint64_t file_size, const std::string& where) {
  uint64_t end = 0;
  for (const Extent& extent : extents) {
    if (extent.size == 0 || extent.file_offset < end || extent.file_offset > file_size ||
        extent.size > file_size - extent.file_offset) {
      return Malformed(where, "sorted extents inside a file of " + std::to_string(file_size) + " bytes",
                       std::to_string(extent.size) + " bytes at " + std::to_string(extent.file_offset) +
                           " after byte " + std::to_string(end));
    }
    end = extent.file_offset + extent.size;
  }
  return {};
}

Status CheckWholePages(const std::vector<Extent>& extents, uint64_t file_size, const std::string& where) {
  const auto refuse = [&](const char* verb, uint64_t at) {
    return Status::FourPart(
        Code::kInvalid, where,
        "every page of " + std::to_string(kPageSize) + " bytes that a rank writes to whole, or to the end of the file",
        "a piece that " + std::string(verb) + " at byte " + std::to_string(at),
        "Give each page of the file to one rank");
  };
  uint64_t end = 0;  // where the extents so far end in the file
  for (const Extent& extent : extents) {
    if (extent.size == 0) continue;
    if (extent.file_offset != end && end % kPageSize != 0) return refuse("ends", end);
    if (extent.file_offset != end && extent.file_offset % kPageSize != 0) return refuse("begins", extent.file_offset);
    end = extent.file_offset + extent.size;
  }
  return end % kPageSize == 0 || end == file_size ? Status() : refuse("ends", end);
}

Status CheckCoverage(std::vector<Extent> extents, uint64_t file_size, const std::string& where) {
  std::sort(extents.begin(), extents.end(),
            [](const Extent& a, const Extent& b) { return a.file_offset < b.file_offset; });
  uint64_t end = 0;
  for (const Extent& extent : extents) {
    if (extent.file_offset != end) {
      const bool gap = extent.file_offset > end;
      return Malformed(where, "every byte of the model file from exactly one rank",
                       gap ? "no rank wrote bytes " + std::to_string(end) + " to " + std::to_string(extent.file_offset)
                           : "two ranks wrote byte " + std::to_string(extent.file_offset));
    }
    end = extent.file_offset + extent.size;
  }
  if (end != file_size) {
    return Malformed(where, "every byte of the model file from exactly one rank",
                     "no rank wrote bytes " + std::to_string(end) + " to " + std::to_string(file_size));
  }
  return {};
}

uint64_t TotalBytes(const std::vector<Extent>& extents) {
  uint64_t total = 0;
  for (const Extent& extent : extents) total += extent.size;
  return total;
}

Status CheckVersion(uint32_t version, const std::string& where) {
  if (version == kFirstVersion || version == kFormatVersion) return {};
  return Malformed(where, "format version 1 or 2", "version " + std::to_string(version));
}

Status Malformed(const std::string& where, const std::string& expected, const std::string& found) {
  return Status::FourPart(Code::kCorrupt, where, expected, found, "Use another checkpoint; this one can't be trusted");
}

}  // namespace deepfreeze
