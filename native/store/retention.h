// Deletes checkpoints that newer ones have replaced, after a commit and never before, and what is left of failed steps.
// Only rank 0's engine calls it, one call at a time. In a run that another attempt has taken it does nothing: kTaken.
//
// Nothing is deleted under its own name: it is renamed to .trash-* first, so that a reader, or a crash half-way, never
// meets a checkpoint of which a part is gone.
#ifndef DEEPFREEZE_STORE_RETENTION_H_
#define DEEPFREEZE_STORE_RETENTION_H_

#include <string>

#include "base/coding.h"
#include "base/env.h"

namespace deepfreeze {

struct RetainRequest {
  std::string run_dir;
  int64_t step = 0;
  Id attempt{};
  uint32_t world = 1;
  uint32_t keep = 1;
  uint32_t backlog = 1;  // by how many steps a rank may lag behind the newest commit
};

// After the commit of step. Keeps, of the committed checkpoints up to it, the newest `keep` and the newest at which the
// ranks did not differ; removes the older ones, this attempt's partial directories below step, and whatever an earlier
// call left in the trash. Newer checkpoints are not touched. The newest partial directories, as many as a rank may lag
// behind, stay while some rank has yet to learn from them that the step failed. What can't be removed does not keep the
// rest from being removed.
Status Retain(Env* env, const RetainRequest& request);

// Before a commit, when the store is full: removes this attempt's partial directories below step that every rank, so
// also rank 0, has given up.
Status RemoveFailed(Env* env, const RetainRequest& request, bool* removed);

// Renames RUN/name, the directory of the given step and attempt, into the trash.
Status MoveToTrash(Env* env, const std::string& run_dir, const std::string& name, int64_t step, const Id& attempt);

// Removes a directory and all in it; symbolic links are removed, not followed.
Status RemoveTree(Env* env, const std::string& path);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_RETENTION_H_
