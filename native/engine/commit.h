// Fourth stage. Rank 0 waits for the records of all ranks and commits; every other rank watches for that. There is no
// message between ranks: they meet in the run directory.
#ifndef DEEPFREEZE_ENGINE_COMMIT_H_
#define DEEPFREEZE_ENGINE_COMMIT_H_

#include "engine/replicas.h"
#include "engine/retention.h"
#include "engine/stage.h"
#include "store/heartbeat.h"
#include "store/partial.h"

namespace deepfreeze {

class Committer {
 public:
  // retention outlives this.
  Committer(const StageContext& context, Retention* retention) : context_(context), retention_(retention) {}
  // The thread's body; returns when the table stops.
  void Run();

 private:
  // What one look came to.
  struct Look {
    PartialState state;
    bool over = false;  // the verdict is known: committed, or failed with the status returned
    bool durable = false;
    Status doubt;  // on rank 0: of a commit that may have been done all the same, which it could not see
  };
  // Until the verdict is known, or the bound is reached; kClosed when stopping.
  Status Await(const JobRef& job, Look* look);
  // An error that is not over: nothing could be seen.
  Status LookAt(const JobRef& job, Look* look);
  Status CommitIfWhole(const JobRef& job, Look* look);
  Status Watch(int64_t step, Look* look);
  Status NewerCommitted(int64_t step, bool* newer);
  Status FailureOfOther(int64_t step, const PartialState& state);
  // The step is seen to be committed: its name, which nobody has synced yet, is made durable.
  void SyncName(int64_t step, Look* look);
  void NotifyUnsynced(int64_t step, const Status& why);
  bool decides() const { return context_.options.identity.rank == 0; }

  // Another rank moved.
  void Heard(uint64_t when_us);

  const StageContext context_;
  uint64_t heard_us_ = 0;
  Retention* const retention_;
  Replicas replicas_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_COMMIT_H_
