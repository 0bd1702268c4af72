// The stage kTransfer: writes this rank's ranges of the assembled file. It reads them from the job's memory; when the
// memory is wanted for another checkpoint, it reads the rest from the job's slot.
#ifndef DEEPFREEZE_ENGINE_TRANSFER_H_
#define DEEPFREEZE_ENGINE_TRANSFER_H_

#include <algorithm>
#include <vector>

#include "base/mutex.h"
#include "base/token_bucket.h"
#include "engine/checksum.h"
#include "engine/remover.h"
#include "engine/stage.h"

namespace deepfreeze {

class Transfer {
 public:
  // REQUIRES: remover outlives this.
  Transfer(const StageContext& context, Remover* remover)
      : context_(context),
        remover_(remover),
        blocks_(context.pool->threads(), Block(context.env, context.options.chunk_bytes)),
        bucket_(std::max<uint64_t>(1, context.options.rate)) {}
  // RETURNS as Level::Protect. The other ranks know of a failure by then.
  Status Write(const JobRef& job);

 private:
  // To be called before each try: a rank that is behind, because the store refuses it the step, learns here that the
  // step is not wanted any more. RETURNS kSuperseded or kIncomplete then.
  Status LookFirst(const JobRef& job);
  // In a run whose bytes are bounded: waits until rank 0 has begun the step there. As long as anything moves, and at
  // most commit_timeout_ms after that. RETURNS why the step has failed if it has.
  Status AwaitRank0(const JobRef& job);
  // Writes the whole job. May be repeated: nothing is durable yet. What memory no longer has the slot has, or else the
  // store itself.
  Status Move(const JobRef& job);
  // Reports, once, that direct writes are not possible and go through the page cache.
  void TellIfCached(const ShardWriter& shard);
  // Waits for the checksums of the local level, and computes them if it fails.
  Status TakeChecksums(const JobRef& job);
  // How many runs, from number `first` on, are written before the rate is looked at again. All without a rate.
  size_t Turn(const Job& job, size_t first, uint64_t* bytes) const;  // `first` and the result count in job.order
  // Waits until so many bytes may be written. The job counts as moving meanwhile: nothing is wrong.
  Status AwaitTurn(const JobRef& job, uint64_t bytes);
  // Writes one run of extents. known: the checksums are computed elsewhere; kept: the store has what was written of it
  // before.
  Status MoveRun(const JobRef& job, size_t run, bool known, bool kept, const Sink& to);

  const StageContext context_;
  Remover* const remover_;
  std::vector<Block> blocks_;  // one per worker
  Mutex mutex_;
  TokenBucket bucket_ GUARDED_BY(mutex_);
  bool told_ GUARDED_BY(mutex_) = false;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_TRANSFER_H_
