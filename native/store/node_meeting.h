// Ranks of one node that meet the others together. They look at the store for each other: a rank that finds in the
// node's page that another one has looked since takes over what that one saw. And the last of them to seal a step
// writes the records of all into one file. So looks, and files of records, are as many as there are nodes, or little
// more.
//
// No rank is appointed. Whichever rank's pause is over first looks for all; when a rank dies or hangs, the others' next
// looks find nothing new in the page, and go to the store. A rank whose record is not on the store some seconds after
// it has sealed, because another rank of the node is late or the one that writes is gone, writes its own.
#ifndef DEEPFREEZE_STORE_NODE_MEETING_H_
#define DEEPFREEZE_STORE_NODE_MEETING_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "format/names.h"
#include "store/meeting.h"
#include "store/node_page.h"

namespace deepfreeze {

class NodeMeeting final : public Meeting {
 public:
  // `run`: where this rank meets all others; `identity`: this rank's; `ranks`: those of its node, ascending, at least
  // two; `directory`: in the node's shared memory, where it need not exist; patience_us: how long a record may be in
  // the page alone. REQUIRES: env outlives this. Without such memory this rank meets the others as if it were alone.
  NodeMeeting(std::unique_ptr<Meeting> run, Env* env, const Identity& identity, const std::string& directory,
              const std::vector<uint32_t>& ranks, uint64_t patience_us);

  Status Sealed(const Record& record, Seal* seal) override;
  Status Failed(int64_t step, const std::string& why) override { return run_->Failed(step, why); }
  Status Superseded(int64_t step, int64_t by) override { return run_->Superseded(step, by); }
  void Beat(int64_t step, uint64_t beat) override { run_->Beat(step, beat); }
  void Ended(int64_t step, bool committed) override;
  Status Look(int64_t step, Verdict* verdict, std::string* why) override;
  Status Roll(int64_t step, PartialState* roll, std::string* failure) override;

 private:
  struct Kept {
    Record record;
    uint64_t since_us = 0;
  };
  // Puts the record into the page. If the others' are there too: *all has the records of the node's ranks. RETURNS
  // false if the record has to be written by itself.
  bool Share(const Record& record, std::vector<std::string>* all);
  // RETURNS the other ranks' records of the step, and this one's; none unless all are in the page.
  std::vector<std::string> Gather(int64_t step, const std::string& own) REQUIRES(mutex_);
  // Writes this rank's record if it has been in the page alone for too long.
  Status WriteIfLate(int64_t step);
  // RETURNS whether another rank of the node has looked at the step for this one; *verdict is then what it saw. If none
  // has, says in the page that this rank looks.
  bool SeenByAnother(int64_t step, Verdict* verdict);
  // Changes what the page says of this rank and the step.
  template <typename Change>
  Status Note(int64_t step, const Change& change) REQUIRES(mutex_);
  // Forgets what was kept for the step.
  void Forget(int64_t step) REQUIRES(mutex_);

  Env* const env_;
  const Identity identity_;
  const uint64_t patience_us_;
  NodeRanks ranks_;
  bool regular_ = false;  // the node's ranks have a name
  const std::unique_ptr<Meeting> run_;
  Mutex mutex_;
  std::unique_ptr<NodePage> page_ GUARDED_BY(mutex_);      // null without shared memory
  std::map<int64_t, Sight> own_ GUARDED_BY(mutex_);        // this rank's sights of the newest steps
  std::map<int64_t, uint32_t> others_ GUARDED_BY(mutex_);  // by step: of how many looks by other ranks this rank knows
  std::map<int64_t, Kept> kept_ GUARDED_BY(mutex_);        // records that are in the page alone
  uint32_t puts_ GUARDED_BY(mutex_) = 0;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_NODE_MEETING_H_
