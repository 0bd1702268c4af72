// The second stage: writes this rank's ranges of the assembled file. It reads them from the job's memory; when the
// memory is wanted for another checkpoint, it reads the rest from the job's slot.
#ifndef DEEPFREEZE_ENGINE_TRANSFER_H_
#define DEEPFREEZE_ENGINE_TRANSFER_H_

#include <vector>

#include "engine/checksum.h"
#include "engine/retention.h"
#include "engine/stage.h"

namespace deepfreeze {

class Transfer {
 public:
  // retention must outlive this.
  Transfer(const StageContext& context, Retention* retention)
      : context_(context),
        retention_(retention),
        blocks_(context.pool->threads(), Block(context.env, context.options.chunk_bytes)) {}
  // The thread's body; returns when the table stops.
  void Run();

 private:
  // Writes the whole job. May be repeated: nothing is durable yet, and the slot has what memory no longer has.
  Status Move(const JobRef& job);
  // Reports, once, that direct writes are not possible and go through the page cache.
  void TellIfCached(const PartialWriter& partial);
  // For a job that was captured in a slot: waits for the checksums of the local writer; computes them if it has failed.
  Status TakeChecksums(const JobRef& job);
  // Writes one run of extents.
  Status MoveRun(const JobRef& job, size_t run, const Sink& to);

  const StageContext context_;
  Retention* const retention_;
  std::vector<Block> blocks_;  // one per worker
  bool told_ = false;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_TRANSFER_H_
