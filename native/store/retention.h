// Deletes committed checkpoints that the caller no longer keeps, the partial directories of failed steps, and what is
// in the trash. REQUIRES: only rank 0's engine calls CleanUpAfter, RemoveStep and RemoveFailed, one at a time. If
// another attempt has taken the run, they do nothing and return kTaken.
//
// A directory is renamed to .trash-* before anything in it is deleted. So neither a reader nor a start after a crash
// finds a checkpoint that lacks files.
#ifndef DEEPFREEZE_STORE_RETENTION_H_
#define DEEPFREEZE_STORE_RETENTION_H_

#include <string>

#include "base/env.h"
#include "store/store.h"

namespace deepfreeze {

// Store::CleanUp, Store::Remove and Store::MakeRoom in a run's directory. RETURN as these.
//
// All of a failed step stays while some rank has no failure marker in the partial directory, because that rank has yet
// to learn that the step failed; of such steps only the newest request.backlog stay.
Status CleanUpAfter(Env* env, const std::string& run_dir, const CleanUpRequest& request);
Status RemoveStep(Env* env, const std::string& run_dir, const Id& attempt, int64_t step);
Status RemoveFailed(Env* env, const std::string& run_dir, const CleanUpRequest& request, MadeRoom* made);

// Renames RUN/name, the directory of this step and attempt, to .trash-step-N-ATTEMPT, in place of what has that name.
// Does not delete it.
Status MoveToTrash(Env* env, const std::string& run_dir, const std::string& name, int64_t step, const Id& attempt);

// Deletes a directory and everything in it. A symbolic link is deleted and not followed. RETURNS ok if there is
// nothing; an error ends it, and the rest is left.
Status RemoveTree(Env* env, const std::string& path);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_RETENTION_H_
