// The parts of a capture's buffer: a buffer is given to the next capture part by part, as soon as the parts have been
// written (PCcheck, ASPLOS 2025, section 3). A part has chunk_bytes, but for the last one.
//
// Both classes are thread-compatible; the job table's mutex guards their objects.
#ifndef DEEPFREEZE_ENGINE_BUFFER_PARTS_H_
#define DEEPFREEZE_ENGINE_BUFFER_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/level_state.h"
#include "format/slot.h"

namespace deepfreeze {

// Where a buffer lies, and how it is divided.
struct BufferSpan {
  const char* base = nullptr;
  uint64_t size = 0;
  uint64_t part_bytes = 1;

  bool Holds(const char* data) const { return base != nullptr && data >= base && data < base + size; }
  // The part that a byte of the buffer is in.
  size_t PartOf(const char* data) const { return static_cast<size_t>(static_cast<uint64_t>(data - base) / part_bytes); }
  size_t parts() const { return static_cast<size_t>((size + part_bytes - 1) / part_bytes); }
};

// The order in which a capture has come to the parts of its buffer. The parts are written in this order, so that the
// next capture, which comes to them in about the same order, waits least.
class PartOrder {
 public:
  void Reset(size_t parts) { rank_.assign(parts, kNever), next_ = 0; }
  // The capture writes to the parts from `first` to `last`.
  void Take(size_t first, size_t last);
  // Smaller for the parts that were taken earlier; greatest for those that never were.
  uint64_t rank(size_t part) const { return part < rank_.size() ? rank_[part] : kNever; }

 private:
  static constexpr uint64_t kNever = ~uint64_t{0};
  std::vector<uint64_t> rank_;  // by part
  uint64_t next_ = 0;
};

// Which parts of its buffer a checkpoint still needs: those with an extent that some level has yet to read.
class BufferParts {
 public:
  // Of a checkpoint that lies elsewhere: it has no parts, and none is ever free.
  BufferParts() = default;
  // sources[i]: the memory of extents[i], in the buffer or elsewhere. Until Begin no level has anything to read.
  BufferParts(const BufferSpan& buffer, const std::vector<Extent>& extents, const std::vector<const char*>& sources);

  bool empty() const { return uses_.empty(); }
  // These levels will read all extents.
  void Begin(LevelSet levels);
  // The level no longer reads n extents, from number `first` on. RETURNS whether this has freed a part. Allocates no
  // memory.
  bool Drop(LevelId level, size_t first, size_t n);
  // The level will read again what it has dropped. REQUIRES: nobody has written to parts that were free.
  void Restore(LevelId level);
  // RETURNS whether the level has dropped none of these n extents. Always true without parts: the level may read the
  // memory as often as it likes.
  bool MayRead(LevelId level, size_t first, size_t n) const;
  // RETURNS whether the level has dropped all of these n extents. Always false without parts.
  bool HasRead(LevelId level, size_t first, size_t n) const;
  // RETURNS whether no level needs the parts from `first` to `last` any more. Always false without parts.
  bool Free(size_t first, size_t last) const;

 private:
  // How many of these extents the level has yet to read.
  size_t Left(LevelId level, size_t first, size_t n) const;

  struct Piece {
    size_t first = 1;  // the first and last part that the extent is in; none if last is less
    size_t last = 0;
    LevelSet levels = 0;  // that have yet to read it
  };

  std::vector<Piece> pieces_;   // by extent
  std::vector<uint32_t> uses_;  // by part: its extents that some level has yet to read
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_BUFFER_PARTS_H_
