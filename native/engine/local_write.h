// The level kLocal: writes a job from memory to a slot of the local tier, and computes its checksums. When the local
// tier is full or fails, the engine gives it up for the rest of its life, with one notice, and jobs pass this level by.
#ifndef DEEPFREEZE_ENGINE_LOCAL_WRITE_H_
#define DEEPFREEZE_ENGINE_LOCAL_WRITE_H_

#include <vector>

#include "engine/checksum.h"
#include "engine/level.h"
#include "engine/stage.h"

namespace deepfreeze {

class LocalWriter : public Level {
 public:
  explicit LocalWriter(const StageContext& context)
      : context_(context), blocks_(context.pool->workers(), Block(context.env, context.options.chunk_bytes)) {}

  Status Protect(const JobRef& shard, size_t stage) override;
  // Gives back the slots of older steps.
  void Release(const JobRef& shard) noexcept override { context_.table->ReleaseSlots(shard->step); }

 private:
  Status Write(const JobRef& job, uint32_t slot);
  void GiveUp(const Status& why);

  const StageContext context_;
  std::vector<Block> blocks_;  // one per worker
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_LOCAL_WRITE_H_
