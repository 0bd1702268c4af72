// Cuts regions into extents, and writes extents. A checksum is computed block by block together with the write or copy
// of the block, while the block's bytes are in the processor's cache.
#ifndef DEEPFREEZE_ENGINE_CHECKSUM_H_
#define DEEPFREEZE_ENGINE_CHECKSUM_H_

#include "base/pages.h"
#include "engine/job.h"
#include "store/shard_writer.h"

namespace deepfreeze {

// Small enough to stay in a core's second-level cache between the checksum and the copy.
constexpr size_t kBlockBytes = size_t{256} << 10;

// Bytes. A direct write of fewer takes longer than to copy them: behind their neighbour, or to the page cache.
constexpr uint64_t kSmallExtent = uint64_t{64} << 10;

// How many extents a region of `size` bytes is cut into.
inline uint64_t CountExtents(uint64_t size, uint64_t chunk_bytes) {
  return size / chunk_bytes + (size % chunk_bytes == 0 ? 0 : 1);
}

// Cuts job->regions: fills job->extents (their checksums stay 0), job->sources, job->summed, job->runs and job->order,
// which is that of the file. A run is written at once: it is one extent, or several small ones that follow each other
// in the file and have at most chunk_bytes together. A second call does nothing.
void CutExtents(Job* job, uint64_t chunk_bytes);

// Has the runs written in the order in which their capture has come to the parts of its buffer; what lies elsewhere
// comes last. Sets job->first_part too.
void OrderRuns(Job* job, const BufferSpan& buffer, const PartOrder& taken);

// `size` bytes of memory that start at a multiple of kDirectUnit; each thread has a block of its own. The memory is
// allocated when it is first used.
class Block {
 public:
  // REQUIRES: env outlives this.
  Block(Env* env, size_t size) : env_(env), size_(size) {}
  // Throws std::bad_alloc if there is no memory.
  char* data();
  size_t size() const { return size_; }

 private:
  Env* const env_;
  const size_t size_;
  std::shared_ptr<Pages> pages_;
};

// Where extents are written to: a slot's file, or a shard. Owns nothing. An extent whose place is a multiple of
// kDirectUnit is written past the page cache, up to its last whole unit, if the store or the local tier can do that.
// Such writes are made from the extent's own memory if its address is a multiple of kDirectUnit, else by way of
// `block`.
struct Sink {
  File* slot;          // or null
  File* slot_direct;   // the same file opened with kDirect, or null
  ShardWriter* shard;  // or null
  Block* block;        // may be null if nothing is written directly

  bool direct() const { return shard != nullptr ? shard->direct() : slot_direct != nullptr; }
  Status Write(uint64_t at, const char* data, size_t n, bool past_cache = false) const {
    if (shard == nullptr) return WriteFull(past_cache ? slot_direct : slot, at, data, n);
    return past_cache ? shard->WriteDirect(at, data, n) : shard->Write(at, data, n);
  }
  // A slot is never synced, for it outlives the process and not the machine: what is in the page cache is left there.
  void StartWriteback(uint64_t at, uint64_t n) const {
    if (shard != nullptr) shard->StartWriteback(at, n);
  }
};

// Writes the extent->size bytes from `from` at offset `at`. Sets extent->crc, unless `known` says that the checksum is
// computed elsewhere.
Status WriteExtent(const char* from, const Sink& to, uint64_t at, bool known, Extent* extent);

// Does this for n extents that follow each other in the file, at their file_offset, with a single write; from[i] is the
// memory of extent i. REQUIRES: they have at most to.block->size() bytes together.
Status WriteGathered(const char* const* from, const Sink& to, bool known, Extent* extents, size_t n);

// Copies extent.size bytes from offset `place` of a file to extent.file_offset of another. kCorrupt, naming the file
// `from`, if the bytes contradict extent.crc; they are written by then.
Status CopyVerified(File* from, uint64_t place, const Sink& to, const Extent& extent);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_CHECKSUM_H_
