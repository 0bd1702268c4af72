// The commit: the one atomic act after which a checkpoint exists. Only rank 0's engine calls it, or the start of a job
// that finishes what a dead attempt left. After a crash at any point it may be repeated. All functions here block on
// the external store.
#ifndef DEEPFREEZE_STORE_COMMIT_H_
#define DEEPFREEZE_STORE_COMMIT_H_

#include <string>

#include "base/env.h"
#include "format/manifest.h"
#include "store/comparison.h"

namespace deepfreeze {

struct CommitRequest {
  std::string run_dir;
  int64_t step = 0;
  Id attempt{};
  // The identity that all records must have, but for the rank; null: they must agree with each other.
  const Identity* expected = nullptr;
  // Whether to read the whole model file again and compare it with the records' checksums.
  bool verify = false;
  // The result of the last comparison before, or null. It holds for this step too unless this step's comparison says
  // more: see Holds.
  const Divergence* known = nullptr;
  // Whether the commit fails if the ranks differ (kDiverged). Otherwise the manifest says how many tensors differ.
  bool refuse_diverged = false;
  // Whether the attempt is the caller's own. Then RUN/owner must still name it right before the rename (else kTaken).
  bool own = false;
  // Whether to refuse records that have only a part of a page, because another rank might have written the rest. Older
  // versions wrote such records, so a caller that finishes another attempt's checkpoint leaves this false.
  bool whole_pages = false;
  // Whether another attempt's checkpoint of the same step is moved to the trash. Otherwise it stays and the commit
  // fails (kInvalid).
  bool replace = false;
};

struct CommitOutcome {
  Divergence divergence;
  bool compared = false;  // whether the ranks took checksums at this step, of whole tensors or of a part
  // Whether this call has committed the step, and so gathered the ranks' records. False if it was committed before.
  bool gathered = false;
  // After an error: true if the step may be committed all the same, because the files could not be looked at after a
  // failed rename. The caller must not report such a step as failed.
  bool in_doubt = false;
  // After success: ok, or the error of the last sync, which makes the step's name durable. After such an error a loss
  // of power may take the checkpoint, so older ones must stay until a later commit's sync succeeds.
  Status unsynced;
};

// Ok: the step is committed by this attempt, now or before. kIncomplete: a rank's record is missing. kCorrupt: a record
// is damaged, or the records do not fit together, or the model file does not fit them. kDiverged, kTaken, kInvalid: see
// the request's fields. Other codes: a call to the system failed.
Status Commit(Env* env, const CommitRequest& request, CommitOutcome* outcome);

// *counts: whether RUN/step-N is a checkpoint, that is, has a valid manifest of this step. An error means that this
// could not be seen, and not that there is none.
Status ReadCommitted(Env* env, const std::string& run_dir, int64_t step, Manifest* manifest, bool* counts);
// *committed: whether it is a checkpoint of this attempt.
Status IsCommitted(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, bool* committed);

// `found` is the result of the comparison at `step`. Returns what holds for later steps until the next comparison: the
// same tensors, and the text "not compared since step N: ...".
Divergence NotComparedSince(int64_t step, const Divergence& found);

// The same for `step` of a dead attempt: *known is the result of that attempt's last comparison before it, taken from
// committed checkpoints and partial directories; it stays as it is if there was none.
Status KnownBefore(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, Divergence* known);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_COMMIT_H_
