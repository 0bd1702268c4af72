// Second stage: this rank's ranges into the assembled file. Reads the caller's memory while it may, the slot
// afterwards.
#ifndef DEEPFREEZE_ENGINE_TRANSFER_H_
#define DEEPFREEZE_ENGINE_TRANSFER_H_

#include <vector>

#include "engine/checksum.h"
#include "engine/retention.h"
#include "engine/stage.h"

namespace deepfreeze {

class Transfer {
 public:
  // retention outlives this.
  Transfer(const StageContext& context, Retention* retention)
      : context_(context),
        retention_(retention),
        blocks_(context.pool->threads(), Block(context.env, context.options.chunk_bytes)) {}
  // The thread's body; returns when the table stops.
  void Run();

 private:
  // All of it. May be repeated: nothing is durable yet, and what the memory no longer holds the slot does.
  Status Move(const JobRef& job);
  // One notice where writes go through the page cache against expectation.
  void TellIfCached(const PartialWriter& partial);
  // Of a job that was captured in a slot.
  Status TakeChecksums(const JobRef& job);
  Status MoveRun(const JobRef& job, size_t run, const Sink& to);

  const StageContext context_;
  Retention* const retention_;
  std::vector<Block> blocks_;  // one per worker
  bool told_ = false;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_TRANSFER_H_
