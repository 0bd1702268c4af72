// The ranks meet in the run's directory: records and failure markers in the step's partial directory tell rank 0 who
// has come, and two names in the run tell the others what rank 0 has decided, RUN/step-N and RUN/step-N.failed-ATTEMPT.
// The text of the latter says whether the step has failed or was given up for a newer one.
#ifndef DEEPFREEZE_STORE_DIR_MEETING_H_
#define DEEPFREEZE_STORE_DIR_MEETING_H_

#include <set>
#include <string>

#include "base/env.h"
#include "base/mutex.h"
#include "store/meeting.h"

namespace deepfreeze {

class DirMeeting final : public Meeting {
 public:
  // REQUIRES: env outlives this. identity: this rank's; its step does not matter. Touches no disk.
  DirMeeting(Env* env, std::string run_dir, const Identity& identity)
      : env_(env), run_dir_(std::move(run_dir)), identity_(identity) {}

  Status Sealed(const Record& record, Seal* seal) override;
  bool SealsTogether() const override { return true; }
  Status SealedTogether(const Record& own, const NodeRanks& ranks, const std::string& records, Seal* seal) override;
  void SealedByAnother(int64_t step) override;
  Status Failed(int64_t step, const std::string& why) override;
  Status Superseded(int64_t step, int64_t by) override;
  void Beat(int64_t step, uint64_t beat) override;
  Status Look(int64_t step, Verdict* verdict, std::string* why) override;
  void Ended(int64_t step, bool committed) override;
  Status Roll(int64_t step, PartialState* roll, std::string* failure) override;

 private:
  bool decides() const { return identity_.rank == 0; }
  Identity At(int64_t step) const;
  // RETURNS true if SealedTogether has made the file of the node's records for this step.
  bool HasBegunTogether(int64_t step);
  // The failure of a rank as all ranks tell it. A text that already names a rank, because that rank had heard of
  // another one's failure, stays as it is.
  std::string OfRank(int64_t step, uint32_t rank, const std::string& text) const;
  // This rank has heard that the step has failed. When every rank has said so, rank 0 may remove what the step has
  // left. As long as that is there, a rank can tell a failed step from one that was committed, replaced and removed.
  void Answer(int64_t step, const std::string& why);
  // What the file says by which rank 0 has told that the step is over. *why: as of Look.
  Status ReadTold(int64_t step, const std::string& path, Verdict* verdict, std::string* why);
  // *newest: the newest committed step that this rank knows of, if it is newer than `step`; else that or an older one.
  Status NewestCommitted(int64_t step, int64_t* newest);
  // *removed: whether the step was committed, and removed because a newer one is. REQUIRES: it is not committed now and
  // not told to have failed; *removed is false.
  Status WasReplaced(int64_t step, bool* removed);

  Env* const env_;
  const std::string run_dir_;
  const Identity identity_;
  Mutex mutex_;
  // Steps that this rank has sealed, or tried to, and whose end it has not seen. Of the steps whose end it has not
  // seen, rank 0 can have committed these alone.
  std::set<int64_t> sealed_ GUARDED_BY(mutex_);
  int64_t committed_ GUARDED_BY(mutex_) = -1;      // the newest step of which this rank has seen the commit
  std::set<int64_t> together_ GUARDED_BY(mutex_);  // of which this rank has begun to write the records of its node
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_DIR_MEETING_H_
