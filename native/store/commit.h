// The commit in a run's directory, and what tells whether there was one.
#ifndef DEEPFREEZE_STORE_COMMIT_H_
#define DEEPFREEZE_STORE_COMMIT_H_

#include <string>

#include "base/env.h"
#include "base/mutex.h"
#include "store/store.h"

namespace deepfreeze {

// Store::Commit in a run's directory: gathers the records in the partial directory, writes the manifest, and renames
// the partial directory to the step's name. REQUIRES: no other thread or process changes the step meanwhile, but by
// what the ranks put down for it. last: held while the step gets its name and that is synced, so that of several
// commits a sync that succeeds comes after the renames before it, and after none whose sync has failed since. RETURNS
// as Store::Commit.
Status CommitPartial(Env* env, const std::string& run_dir, const CommitRequest& request, Mutex* last,
                     CommitOutcome* outcome);

// *counts: whether RUN/step-N is a checkpoint, that is, has a valid manifest of this step; *manifest is that one.
// RETURNS an error if this could not be seen; ok, and not an error, if there is none. After an error neither is to be
// used.
Status ReadCommitted(Env* env, const std::string& run_dir, int64_t step, Manifest* manifest, bool* counts);
// *committed: whether it is a checkpoint of this attempt. RETURNS as ReadCommitted.
Status IsCommitted(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, bool* committed);

// *known: what NotComparedSince returns for the last comparison of this dead attempt before `step`, taken from
// committed checkpoints and partial directories. It stays as it is if there was none. REQUIRES: no engine of the
// attempt runs any more. RETURNS an error if the run, or a record in it, can't be read; damaged records are passed
// over.
Status KnownBefore(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, Divergence* known);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_COMMIT_H_
