// Cutting regions into extents, and moving an extent while its checksum is computed and its bytes are in the
// processor's cache.
#ifndef DEEPFREEZE_ENGINE_CHECKSUM_H_
#define DEEPFREEZE_ENGINE_CHECKSUM_H_

#include "base/pages.h"
#include "engine/job.h"

namespace deepfreeze {

// Small enough to stay in a core's second-level cache between the checksum and the copy.
constexpr size_t kBlockBytes = size_t{256} << 10;

// How many extents a region is cut into.
inline uint64_t CountExtents(uint64_t size, uint64_t chunk_bytes) {
  return size / chunk_bytes + (size % chunk_bytes == 0 ? 0 : 1);
}

// Fills job->extents (without checksums), job->sources and job->runs; does nothing the second time. A run is one
// extent, or small ones that follow each other in the file, at most chunk_bytes together.
void CutExtents(Job* job, uint64_t chunk_bytes);

// Memory that starts at a multiple of kDirectUnit; one per thread, made when first used.
class Block {
 public:
  Block(Env* env, size_t size) : env_(env), size_(size) {}
  // Throws std::bad_alloc if there is no room.
  char* data();
  size_t size() const { return size_; }

 private:
  Env* const env_;
  const size_t size_;
  std::shared_ptr<Pages> pages_;
};

// Where an extent goes: `direct` is the same file past the page cache, or null. Whole units of an extent that begins at
// one are written directly, from where they lie if they lie at a multiple of the unit too, else by way of the block.
struct Sink {
  File* file;
  File* direct;
  Block* block;
};

// Writes extent->size bytes at `at`, and sets extent->crc unless it is known.
Status WriteExtent(const char* from, const Sink& to, uint64_t at, bool known, Extent* extent);

// Does this for extents that follow each other in the file, at most to.block->size() bytes, with a single write.
Status WriteGathered(const char* const* from, const Sink& to, bool known, Extent* extents, size_t n);

// Copies an extent from file to file; kCorrupt, naming `from`, if its bytes contradict extent.crc.
Status CopyVerified(File* from, uint64_t place, const Sink& to, const Extent& extent);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_CHECKSUM_H_
