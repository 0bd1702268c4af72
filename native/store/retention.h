// Deletes checkpoints that newer ones have replaced. Rank 0's engine calls it, after a commit and never before.
//
// Nothing is deleted under its own name: it is renamed to .trash-* first, so that a reader, or a crash half-way, never
// meets a checkpoint of which a part is gone.
#ifndef DEEPFREEZE_STORE_RETENTION_H_
#define DEEPFREEZE_STORE_RETENTION_H_

#include <string>

#include "base/coding.h"
#include "base/env.h"

namespace deepfreeze {

// Keeps, of the committed checkpoints up to step, the newest `keep`; removes the older ones, this attempt's partial
// directories below step, and whatever an earlier call left in the trash. Newer checkpoints are not touched.
Status Retain(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, uint32_t keep);

// Renames RUN/name, the directory of the given step and attempt, into the trash.
Status MoveToTrash(Env* env, const std::string& run_dir, const std::string& name, int64_t step, const Id& attempt);

// Removes a directory and all in it; symbolic links are removed, not followed.
Status RemoveTree(Env* env, const std::string& path);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_RETENTION_H_
