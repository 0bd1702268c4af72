#include "engine/checksum.h"

#include <algorithm>

#include "base/crc32c.h"

namespace deepfreeze {

void CutExtents(Job* job, uint64_t chunk_bytes) {
  if (!job->extents.empty()) return;
  for (const Region& region : job->regions) {
    for (uint64_t at = 0; at < region.size; at += chunk_bytes) {
      job->extents.push_back(Extent{region.file_offset + at, std::min(chunk_bytes, region.size - at), 0});
      job->sources.push_back(region.data + at);
    }
  }
}

Status WriteChecksummed(const char* from, File* to, uint64_t at, Extent* extent) {
  uint32_t crc = 0;
  for (uint64_t done = 0; done < extent->size;) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(kBlockBytes, extent->size - done));
    crc = Crc32c(crc, from + done, n);
    DF_RETURN_IF_ERROR(WriteFull(to, at + done, from + done, n));
    done += n;
  }
  extent->crc = crc;
  return {};
}

Status CopyVerified(File* from, uint64_t place, File* to, const Extent& extent, char* block) {
  uint32_t crc = 0;
  for (uint64_t done = 0; done < extent.size;) {
    const size_t n = static_cast<size_t>(std::min<uint64_t>(kBlockBytes, extent.size - done));
    DF_RETURN_IF_ERROR(ReadFull(from, place + done, block, n));
    crc = Crc32c(crc, block, n);
    DF_RETURN_IF_ERROR(WriteFull(to, extent.file_offset + done, block, n));
    done += n;
  }
  if (crc == extent.crc) return {};
  return Malformed(from->path(),
                   "checksum " + Hex32(extent.crc) + " of bytes " + std::to_string(extent.file_offset) + " to " +
                       std::to_string(extent.file_offset + extent.size),
                   Hex32(crc));
}

}  // namespace deepfreeze
