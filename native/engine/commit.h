// The fourth stage. Rank 0 waits for the records of all ranks and commits the checkpoint, or fails it; each other rank
// waits until it sees in the run directory what rank 0 did. The ranks send each other no messages.
#ifndef DEEPFREEZE_ENGINE_COMMIT_H_
#define DEEPFREEZE_ENGINE_COMMIT_H_

#include "engine/replicas.h"
#include "engine/stage.h"
#include "store/heartbeat.h"
#include "store/partial.h"

namespace deepfreeze {

class Committer {
 public:
  explicit Committer(const StageContext& context) : context_(context) {}
  // The thread's body; returns when the table stops.
  void Run();

 private:
  // The result of looking at the run directory once.
  struct Look {
    PartialState state;
    bool over = false;     // the outcome is known: the step is committed (ok), or has failed (the Status returned)
    bool durable = false;  // the step is committed and its name is synced
    Status doubt;          // rank 0: the error of a commit that may have been done; ok if there is no such doubt
  };
  // Looks again and again until the outcome is known. kIncomplete: nothing has moved for commit_timeout_ms. kClosed:
  // the engine is stopping.
  Status Await(const JobRef& job, Look* look);
  // Looks once. An error while look->over is false: the directory could not be looked at.
  Status LookAt(const JobRef& job, Look* look);
  // Rank 0's look: commits the step if all records are there.
  Status CommitIfWhole(const JobRef& job, Look* look);
  // The other ranks' look.
  Status Watch(int64_t step, Look* look);
  // *newer: whether this attempt has committed a step after this one.
  Status NewerCommitted(int64_t step, bool* newer);
  // If a rank has left a failure marker: leaves one too, and returns that rank's failure. Ok if there is no marker.
  Status FailureOfOther(int64_t step, const PartialState& state);
  // For a step that is seen to be committed, and whose name nobody has synced yet: syncs it.
  void SyncName(int64_t step, Look* look);
  void NotifyUnsynced(int64_t step, const Status& why);
  bool decides() const { return context_.options.identity.rank == 0; }

  // Notes that another rank has moved.
  void Heard(uint64_t when_us);

  const StageContext context_;
  uint64_t heard_us_ = 0;
  Replicas replicas_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_COMMIT_H_
