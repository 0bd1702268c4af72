// The level kExternal: the shards of all ranks, assembled in one file of the run, and committed. Three stages, each
// with threads of its own, so that one step is written while the one before is synced and another one waits for its
// commit. Each stage has as many threads as checkpoints may be written at once (Options::transfers). With more than one
// a newer step may be committed before an older one.
#ifndef DEEPFREEZE_ENGINE_EXTERNAL_H_
#define DEEPFREEZE_ENGINE_EXTERNAL_H_

#include "engine/committer.h"
#include "engine/level.h"
#include "engine/publish.h"
#include "engine/transfer.h"

namespace deepfreeze {

class External : public Level {
 public:
  // REQUIRES: remover outlives this.
  External(const StageContext& context, Remover* remover)
      : context_(context), transfer_(context, remover), publisher_(context, remover), committer_(context) {}

  Status Protect(const JobRef& shard, size_t stage) override;
  // Has retention remove what older steps have left.
  void Release(const JobRef& shard) noexcept override;

 private:
  const StageContext context_;
  Transfer transfer_;
  Publisher publisher_;
  Committer committer_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_EXTERNAL_H_
