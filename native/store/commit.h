// The one atomic act after which a checkpoint exists. Only rank 0's engine, or a job that clears up after a dead
// attempt, calls it. Every step of it may be repeated after a crash at any point.
#ifndef DEEPFREEZE_STORE_COMMIT_H_
#define DEEPFREEZE_STORE_COMMIT_H_

#include <string>

#include "base/env.h"
#include "format/manifest.h"

namespace deepfreeze {

struct CommitRequest {
  std::string run_dir;
  int64_t step = 0;
  Id attempt{};
  // What the records must agree with; null: with each other.
  const Identity* expected = nullptr;
  // Read the whole model file again and compare it with the records' checksums.
  bool verify = false;
  // Another attempt's checkpoint of the same step is moved away; otherwise it stays and the commit is refused.
  bool replace = false;
};

// kIncomplete: a rank's record is missing. kCorrupt: a record, or what it describes, is wrong.
Status Commit(Env* env, const CommitRequest& request);

// Whether RUN/step-N counts: its manifest is valid and says the same step.
bool ReadCommitted(Env* env, const std::string& run_dir, int64_t step, Manifest* manifest);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_COMMIT_H_
