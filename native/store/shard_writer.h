// One rank's bytes of one step on their way to the store. A rank of a checkpoint writes few ranges of the file and may
// write them with many threads.
#ifndef DEEPFREEZE_STORE_SHARD_WRITER_H_
#define DEEPFREEZE_STORE_SHARD_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/status.h"

namespace deepfreeze {

// Order of the calls: Begin, writes, Seal. Writes may be made by several threads at once, to ranges that do not
// overlap; all other calls by one thread at a time. Offsets are bytes of the assembled file.
class ShardWriter {
 public:
  ShardWriter() = default;
  virtual ~ShardWriter() = default;
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // Makes what is missing of the shard's place. May be repeated after a failure, also of a write; then everything is
  // written again, but for what the caller can't write again. *kept: whether every write that has returned ok is known
  // to be kept. It is always false in the first call, or if the call before passed null; null: the caller does not want
  // to know, which costs less. RETURNS kNoSpace if there is no room for the shard, as far as the store can tell
  // beforehand.
  virtual Status Begin(bool* kept) = 0;

  // Writes all n bytes, or RETURNS an error; then some may be written. REQUIRES: Begin has returned ok; offset + n is
  // within the file. `data` is not read after the return.
  virtual Status Write(uint64_t offset, const void* data, size_t n) = 0;
  // Whether WriteDirect can be called, after Begin.
  virtual bool direct() const { return false; }
  // As Write, past the page cache. REQUIRES: direct(); offset, n and the address are multiples of kDirectUnit.
  virtual Status WriteDirect(uint64_t offset, const void* data, size_t n) { return Write(offset, data, n); }
  // Why writes go through the page cache. "" if WriteDirect goes past it, or if there is no disk behind the cache.
  virtual std::string CachedBecause() const { return ""; }
  // A hint that the store begin to bring the range to its disk now. Never fails. REQUIRES: as Write.
  virtual void StartWriteback(uint64_t /*offset*/, uint64_t /*n*/) {}

  // Makes everything durable that was written, and ends the writing. REQUIRES: all writes have returned ok. Must not be
  // repeated: after a failed sync the data may be lost, and a second sync would succeed without it. No other rank knows
  // of the shard until Meeting::Sealed.
  virtual Status Seal() = 0;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_SHARD_WRITER_H_
