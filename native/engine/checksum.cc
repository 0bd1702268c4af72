#include "engine/checksum.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

#include "base/crc32c.h"

namespace deepfreeze {

namespace {

void FindRuns(Job* job, uint64_t most) {
  uint64_t end = 0;
  uint64_t size = 0;  // bytes of the run so far; 0: no further extent may join it
  for (size_t i = 0; i < job->extents.size(); ++i) {
    const Extent& extent = job->extents[i];
    const bool small = extent.size < kSmallExtent;
    if (size == 0 || !small || extent.file_offset != end || size + extent.size > most) {
      job->runs.push_back(i);
      size = 0;
    }
    size = small ? size + extent.size : 0;
    end = extent.file_offset + extent.size;
  }
  job->runs.push_back(job->extents.size());
  job->order.resize(job->runs.size() - 1);
  std::iota(job->order.begin(), job->order.end(), size_t{0});
}

}  // namespace

void CutExtents(Job* job, uint64_t chunk_bytes) {
  if (!job->runs.empty()) return;
  for (const Region& region : job->regions) {
    for (uint64_t at = 0; at < region.size; at += chunk_bytes) {
      job->extents.push_back(Extent{region.file_offset + at, std::min(chunk_bytes, region.size - at), 0});
      job->sources.push_back(region.data + at);
    }
  }
  job->summed.resize(job->extents.size());
  FindRuns(job, chunk_bytes);
}

void OrderRuns(Job* job, const BufferSpan& buffer, const PartOrder& taken) {
  std::vector<uint64_t> rank(job->order.size(), ~uint64_t{0});
  for (size_t run = 0; run < rank.size(); ++run) {
    const char* source = job->sources[job->runs[run]];
    if (buffer.Holds(source)) rank[run] = taken.rank(buffer.PartOf(source));
  }
  std::sort(job->order.begin(), job->order.end(),
            [&](size_t a, size_t b) { return rank[a] != rank[b] ? rank[a] < rank[b] : a < b; });
  if (job->order.empty()) return;
  const char* first = job->sources[job->runs[job->order.front()]];
  if (buffer.Holds(first)) job->first_part = buffer.PartOf(first);
}

char* Block::data() {
  if (pages_ == nullptr) pages_ = Pages::Allocate(env_, size_);
  if (pages_ == nullptr) throw std::bad_alloc();
  return pages_->data();
}

namespace {

uint64_t DirectPart(const Sink& to, uint64_t at, uint64_t size) {
  return to.direct() && at % kDirectUnit == 0 ? size / kDirectUnit * kDirectUnit : 0;
}

}  // namespace

Status WriteExtent(const char* from, const Sink& to, uint64_t at, bool known, Extent* extent) {
  uint32_t crc = 0;
  const uint64_t direct = DirectPart(to, at, extent->size);
  const bool aligned = reinterpret_cast<uintptr_t>(from) % kDirectUnit == 0;
  for (uint64_t done = 0; done < extent->size;) {
    const bool past_cache = done < direct;
    const uint64_t left = (past_cache ? direct : extent->size) - done;
    // Each direct write waits for the device, so few large ones are faster than many small ones.
    const uint64_t most = !past_cache ? kBlockBytes : aligned ? left : to.block->size();
    const size_t n = static_cast<size_t>(std::min(most, left));
    const char* data = from + done;
    if (!known) crc = Crc32c(crc, data, n);
    if (past_cache && !aligned) {
      std::memcpy(to.block->data(), data, n);
      data = to.block->data();
    }
    DF_RETURN_IF_ERROR(to.Write(at + done, data, n, past_cache));
    done += n;
  }
  if (!known) extent->crc = crc;
  // The disk begins to write while other extents are still being copied, so a sync at the end has less to wait for.
  if (direct < extent->size) to.StartWriteback(at + direct, extent->size - direct);
  return {};
}

Status WriteGathered(const char* const* from, const Sink& to, bool known, Extent* extents, size_t n) {
  char* block = to.block->data();
  size_t size = 0;
  for (size_t i = 0; i < n; ++i) {
    const size_t bytes = static_cast<size_t>(extents[i].size);
    if (!known) extents[i].crc = Crc32c(0, from[i], bytes);
    std::memcpy(block + size, from[i], bytes);
    size += bytes;
  }
  DF_RETURN_IF_ERROR(to.Write(extents[0].file_offset, block, size));
  to.StartWriteback(extents[0].file_offset, size);
  return {};
}

Status CopyVerified(File* from, uint64_t place, const Sink& to, const Extent& extent) {
  uint32_t crc = 0;
  const uint64_t direct = DirectPart(to, extent.file_offset, extent.size);
  for (uint64_t done = 0; done < extent.size;) {
    const bool past_cache = done < direct;
    const uint64_t left = (past_cache ? direct : extent.size) - done;
    const size_t n = static_cast<size_t>(std::min<uint64_t>(to.block->size(), left));
    char* data = to.block->data();
    DF_RETURN_IF_ERROR(ReadFull(from, place + done, data, n));
    crc = Crc32c(crc, data, n);
    DF_RETURN_IF_ERROR(to.Write(extent.file_offset + done, data, n, past_cache));
    done += n;
  }
  if (crc != extent.crc) {
    return Malformed(from->path(),
                     "checksum " + Hex32(extent.crc) + " of bytes " + std::to_string(extent.file_offset) + " to " +
                         std::to_string(extent.file_offset + extent.size),
                     Hex32(crc));
  }
  if (direct < extent.size) to.StartWriteback(extent.file_offset + direct, extent.size - direct);
  return {};
}

}  // namespace deepfreeze
