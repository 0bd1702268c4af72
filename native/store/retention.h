// Deletes committed checkpoints that the caller no longer keeps, the partial directories of failed steps, and what is
// in the trash. Only rank 0's engine calls it, one call at a time. If another attempt has taken the run, CleanUp,
// RemoveStep and RemoveFailed do nothing and return kTaken.
//
// A directory is renamed to .trash-* before anything in it is deleted. So neither a reader nor a start after a crash
// finds a checkpoint that lacks files.
#ifndef DEEPFREEZE_STORE_RETENTION_H_
#define DEEPFREEZE_STORE_RETENTION_H_

#include <string>
#include <vector>

#include "base/coding.h"
#include "base/env.h"

namespace deepfreeze {

struct CleanUpRequest {
  std::string run_dir;
  int64_t step = 0;
  Id attempt{};
  uint32_t world = 1;    // number of ranks
  uint32_t backlog = 1;  // how many steps a rank may have unfinished
};

// To be called after the commit of request.step. Removes what this attempt's earlier steps have left, which have
// failed: their partial directories and the names by which rank 0 has told of it; and whatever an earlier call left in
// the trash. Committed checkpoints are not touched.
//
// All of a failed step stays while some rank has no failure marker in the partial directory, because that rank has yet
// to learn that the step failed; of such steps only the newest `backlog` stay. What can't be removed does not stop the
// rest; the first error is returned.
Status CleanUp(Env* env, const CleanUpRequest& request);

// Removes the committed checkpoint of `step`, whichever attempt has written it. A step without a directory, or whose
// directory has no valid manifest, is passed over. `attempt`: the caller's own, which must have the run.
Status RemoveStep(Env* env, const std::string& run_dir, const Id& attempt, int64_t step);

// To be called when the store is full and request.step can't be written: removes what earlier steps of this attempt
// have left of which all ranks know that they have failed. *removed: whether there was a partial directory.
Status RemoveFailed(Env* env, const CleanUpRequest& request, bool* removed);

// Renames RUN/name, the directory of this step and attempt, to .trash-step-N-ATTEMPT. Does not delete it.
Status MoveToTrash(Env* env, const std::string& run_dir, const std::string& name, int64_t step, const Id& attempt);

// Deletes a directory and everything in it. A symbolic link is deleted and not followed. Ok if there is nothing.
Status RemoveTree(Env* env, const std::string& path);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_RETENTION_H_
