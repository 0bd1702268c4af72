#include "engine/external.h"

namespace deepfreeze {

Status External::Protect(const JobRef& shard, size_t stage) {
  switch (stage) {
    case kTransfer:
      return transfer_.Write(shard);
    case kPublish:
      return publisher_.Publish(shard);
    default:
      return committer_.Commit(shard);
  }
}

void External::Release(const JobRef& shard) noexcept {
  if (context_.options.identity.rank == 0) context_.upkeep->AskCleanUp(shard->step, shard->durable);
}

}  // namespace deepfreeze
