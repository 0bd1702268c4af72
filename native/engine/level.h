// A level: one way in which a checkpoint is protected. The engine has a list of them (engine.cc): to add one, write
// this interface and enter it there. LevelRow (level_state.h) says how many threads it has and which levels it waits
// for.
#ifndef DEEPFREEZE_ENGINE_LEVEL_H_
#define DEEPFREEZE_ENGINE_LEVEL_H_

#include <functional>
#include <memory>

#include "engine/job.h"

namespace deepfreeze {

struct StageContext;

class Level {
 public:
  virtual ~Level() = default;

  // Does one stage of the level's work for a shard: called by the threads of that stage, the oldest shard first, and
  // for each shard with one stage after the other. Where a stage has several threads, several shards are in it at once,
  // and any of them may end first. Blocks for as long as the work takes, but ends soon when the engine stops. RETURNS
  // ok if the stage is done; kClosed if the engine stops before that; else why this level will not have the shard. Then
  // the step fails if the level is kExternal, and otherwise goes on without this level.
  virtual Status Protect(const JobRef& shard, size_t stage) = 0;

  // The shard's step is committed: what this level has of it, and of older steps that are over, may go. Called by the
  // thread that has committed it, before the caller hears of the commit; by several threads at once if several
  // checkpoints are, and not always in the order of the steps. Must not block on a store. A level that still works on
  // such a step ends that work first, and lets its result go.
  virtual void Release(const JobRef& shard) noexcept = 0;
};

// An entry of the engine's list.
struct LevelEntry {
  LevelRow row;
  std::function<std::unique_ptr<Level>(const StageContext&)> make;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_LEVEL_H_
