// The stage kCommit. Several steps may be in it, each with a thread of its own. Rank 0 waits for the parts of all ranks
// and commits the checkpoint, or fails it; each other rank waits until it sees what rank 0 has decided
// (store/meeting.h).
#ifndef DEEPFREEZE_ENGINE_COMMITTER_H_
#define DEEPFREEZE_ENGINE_COMMITTER_H_

#include <map>

#include "base/mutex.h"
#include "engine/pauses.h"
#include "engine/replicas.h"
#include "engine/stage.h"

namespace deepfreeze {

class Committer {
 public:
  explicit Committer(const StageContext& context) : context_(context), pauses_(context.options.identity.rank) {}
  // RETURNS as Level::Protect: ok if the step is committed. The other ranks know of a failure by then.
  Status Commit(const JobRef& job);

 private:
  // What this rank has seen of a step.
  struct Look {
    explicit Look(const Pauses& before) : pauses(before) {}
    Pauses pauses;
    PartialState roll;       // who had come when the roll was called last
    uint64_t rolled_us = 0;  // when that was
    Pulse pulse;             // whether they have moved since
    uint64_t logged = 0;     // parts of the time-out, of which each was logged
    bool over = false;       // the outcome is known: the step is committed (ok), or has failed (the Status returned)
    bool durable = false;    // the step is committed and its name is synced
    bool compared = false;   // a try to commit has compared the ranks
    Status doubt;            // rank 0: the error of a commit that may have been done; ok if there is no such doubt
  };
  // How long the waits for other steps took.
  Pauses Usual();
  // Looks again and again until the outcome is known. kIncomplete: nothing has moved for commit_timeout_ms. kClosed:
  // the engine is stopping.
  Status Await(const JobRef& job, Look* look);
  // Looks once, at now_us. An error while look->over is false: the store could not be looked at. `rolls`: whether a
  // rank other than 0 calls the roll too; rank 0 does so at each look.
  Status LookAt(const JobRef& job, uint64_t now_us, bool rolls, Look* look);
  // Rank 0's look: commits the step if all records are there.
  Status CommitIfWhole(const JobRef& job, uint64_t now_us, Look* look);
  // Rank 0's look when an error has left open whether its commit has happened.
  Status ResolveDoubt(int64_t step, Look* look);
  // The other ranks' look.
  Status Watch(const JobRef& job, uint64_t now_us, bool rolls, Look* look);
  // Calls the roll, and notes whether another rank has moved. *failure: see Meeting::Roll.
  Status Roll(int64_t step, uint64_t now_us, Look* look, std::string* failure);
  // What the step waits for, after a look with this status.
  std::string WaitsFor(const Status& status, const Look& look) const;
  // Asks what has become of the step, of which a commit may have happened unseen.
  Status Settle(int64_t step, Look* look, Fate* fate);
  void NotifyUnsynced(int64_t step, const Status& why);
  bool decides() const { return context_.options.identity.rank == 0; }

  // Notes that another rank has moved, seen at a look at the step.
  void Heard(int64_t step, uint64_t when_us);
  // When that was noted last at looks at this step or an older one: newer steps may move while this one is stuck.
  uint64_t HeardUntil(int64_t step);

  const StageContext context_;
  Mutex mutex_;
  std::map<int64_t, uint64_t> heard_us_ GUARDED_BY(mutex_);  // by step; of the newest steps
  Pauses pauses_ GUARDED_BY(mutex_);                         // of which each wait has a copy
  Replicas replicas_ GUARDED_BY(mutex_);
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_COMMITTER_H_
