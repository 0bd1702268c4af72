// Cutting regions into extents, and the checksum of an extent while its bytes are in the processor's cache.
#ifndef DEEPFREEZE_ENGINE_CHECKSUM_H_
#define DEEPFREEZE_ENGINE_CHECKSUM_H_

#include "base/env.h"
#include "engine/job.h"

namespace deepfreeze {

// Small enough to stay in a core's second-level cache between the checksum and the copy.
constexpr size_t kBlockBytes = size_t{256} << 10;

// Fills job->extents (without checksums) and job->sources; does nothing the second time.
void CutExtents(Job* job, uint64_t chunk_bytes);

// Writes extent->size bytes and sets extent->crc.
Status WriteChecksummed(const char* from, File* to, uint64_t at, Extent* extent);

// Copies an extent from file to file; kCorrupt, naming `from`, if its bytes contradict extent.crc. block: kBlockBytes.
Status CopyVerified(File* from, uint64_t place, File* to, const Extent& extent, char* block);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_CHECKSUM_H_
