// The one atomic act after which a checkpoint exists. Only rank 0's engine, or a job that clears up after a dead
// attempt, calls it. Every step of it may be repeated after a crash at any point.
#ifndef DEEPFREEZE_STORE_COMMIT_H_
#define DEEPFREEZE_STORE_COMMIT_H_

#include <string>

#include "base/env.h"
#include "format/manifest.h"

namespace deepfreeze {

// In what the ranks differ that they should hold alike: the checksums at the end of their private bytes.
struct Divergence {
  bool compared = false;  // whether a rank took its checksums: those that were not taken are all zero
  uint32_t tensors = 0;
  int32_t first = -1;  // number of the first one
  std::string text;    // "2 tensors differ between the ranks, the first on rank 3"
};

struct CommitRequest {
  std::string run_dir;
  int64_t step = 0;
  Id attempt{};
  // What the records must agree with; null: with each other.
  const Identity* expected = nullptr;
  // Read the whole model file again and compare it with the records' checksums.
  bool verify = false;
  // In what the ranks differed when they were last compared: it goes for this step if they are not compared at it.
  const Divergence* known = nullptr;
  // Fail where the ranks differ in what they should hold alike; otherwise the manifest says so.
  bool refuse_diverged = false;
  // The attempt is the caller's own, and must still have the run when the step is to get its name.
  bool own = false;
  // Refuse records of which two might hold parts of one page. An older version wrote such ones, so whoever finishes
  // what another attempt has left does not ask for it.
  bool whole_pages = false;
  // Another attempt's checkpoint of the same step is moved away; otherwise it stays and the commit is refused.
  bool replace = false;
};

struct CommitOutcome {
  Divergence divergence;
  // After an error: whether the step may be committed all the same. It could not be seen, and nobody may call it
  // failed.
  bool in_doubt = false;
  // Of a committed step: why its name is not known to be durable. Only a loss of power may take it; what it replaces
  // must stay until a later commit's name is durable.
  Status unsynced;
};

// Ok: the step is committed with this attempt. kIncomplete: a rank's record is missing. kCorrupt: a record, or what it
// describes, is wrong. kDiverged: as asked for. kTaken: the run is another attempt's.
Status Commit(Env* env, const CommitRequest& request, CommitOutcome* outcome);

// Whether RUN/step-N counts: its manifest is valid and says the same step. An error: that could not be seen.
Status ReadCommitted(Env* env, const std::string& run_dir, int64_t step, Manifest* manifest, bool* counts);
// Whether it counts and is of that attempt.
Status IsCommitted(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, bool* committed);

// What is known of a later step, at which the ranks are not compared, from what was found at step.
Divergence NotComparedSince(int64_t step, const Divergence& found);

// The same for a dead attempt's step: from the newest one before it, committed or not, that was compared.
Status KnownBefore(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, Divergence* known);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_COMMIT_H_
