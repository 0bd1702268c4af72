#include "engine/buffer_parts.h"

#include <algorithm>

namespace deepfreeze {

void PartOrder::Take(size_t first, size_t last) {
  for (size_t part = first; part <= last && part < rank_.size(); ++part) {
    if (rank_[part] == kNever) rank_[part] = next_++;
  }
}

BufferParts::BufferParts(const BufferSpan& buffer, const std::vector<Extent>& extents,
                         const std::vector<const char*>& sources)
    : pieces_(extents.size()), uses_(buffer.parts()) {
  for (size_t i = 0; i < extents.size(); ++i) {
    if (extents[i].size == 0 || !buffer.Holds(sources[i])) continue;
    pieces_[i].first = buffer.PartOf(sources[i]);
    pieces_[i].last = std::min(buffer.PartOf(sources[i] + extents[i].size - 1), uses_.size() - 1);
  }
}

void BufferParts::Begin(LevelSet levels) {
  for (Piece& piece : pieces_) {
    piece.levels = levels;
    for (size_t part = piece.first; part <= piece.last; ++part) ++uses_[part];
  }
}

void BufferParts::Restore(LevelId level) {
  for (Piece& piece : pieces_) {
    if (piece.levels == 0) {
      for (size_t part = piece.first; part <= piece.last; ++part) ++uses_[part];
    }
    piece.levels |= Only(level);
  }
}

bool BufferParts::Drop(LevelId level, size_t first, size_t n) {
  bool freed = false;
  for (size_t i = first; i < first + n && i < pieces_.size(); ++i) {
    Piece& piece = pieces_[i];
    if ((piece.levels & Only(level)) == 0) continue;
    piece.levels &= ~Only(level);
    if (piece.levels != 0) continue;
    for (size_t part = piece.first; part <= piece.last; ++part) freed = --uses_[part] == 0 || freed;
  }
  return freed;
}

size_t BufferParts::Left(LevelId level, size_t first, size_t n) const {
  size_t left = 0;
  for (size_t i = first; i < first + n; ++i) left += (pieces_[i].levels & Only(level)) != 0 ? 1 : 0;
  return left;
}

bool BufferParts::MayRead(LevelId level, size_t first, size_t n) const { return empty() || Left(level, first, n) == n; }

bool BufferParts::HasRead(LevelId level, size_t first, size_t n) const {
  return !empty() && Left(level, first, n) == 0;
}

bool BufferParts::Free(size_t first, size_t last) const {
  for (size_t part = first; part <= last && part < uses_.size(); ++part) {
    if (uses_[part] > 0) return false;
  }
  return !empty();
}

}  // namespace deepfreeze
