// A rank seals its steps in the run's directory, and looks there for the verdict: a call to the store fails, or another
// rank of the node was faster.
#include "store/dir_meeting.h"

#include <memory>
#include <new>
#include <string>

#include "testing/fault_env.h"
#include "testing/faults_of.h"
#include "testing/simulated_ranks.h"

namespace deepfreeze {
namespace {

const NodeRanks kBoth = {0, 1, 1};

// Two ranks of a node that have written their parts of the steps 1 and 2. The one that is looked at meets faults.
struct Two : Ranks {
  FaultEnv env;
  DirMeeting meeting;
  deepfreeze::Seal seal;
  Verdict verdict = Verdict::kFailed;
  std::string why;

  Two(const std::string& faults, uint32_t rank, deepfreeze::Seal before = deepfreeze::Seal::kByAnother)
      : Ranks(2, 2), env(Env::Posix(), FaultsOf(faults), ""), meeting(&env, run.path(), At(0, rank, 2)), seal(before) {
    for (const int64_t step : {1, 2}) Write(step);
  }
  Status SealTogether(uint32_t rank, int64_t step = 1) {
    const std::string records = EncodeRecord(RecordOf(0, step)) + EncodeRecord(RecordOf(1, step));
    return meeting.SealedTogether(RecordOf(rank, step), kBoth, records, &seal);
  }
  std::string Temporary(int64_t step) const {
    return Join(Join(run.path(), PartialName(step, Id{})), NodeRecordName(kBoth)) + ".tmp";
  }
  bool HasFailed(uint32_t rank) const { return Exists(Join(PartialName(1, Id{}), FailedName(rank))); }
};

// After a loss of power rank 0 may have committed a step whose record is empty, if it was not synced.
void ARecordWhoseSyncFailsIsNotSealed() {
  Two two("fail=EIO:fsync:.record:1", 1);
  CHECK(!two.meeting.Sealed(two.RecordOf(1, 1), &two.seal).ok() && two.seal == Seal::kUnseen);
  CHECK_OK(two.meeting.Sealed(two.RecordOf(1, 1), &two.seal));
  CHECK(two.seal == Seal::kSeen);
}

void AFileOfRecordsThatCanNotBeOpenedAgainIsNotSealed() {
  Two two("fail=EIO:pwrite:.record:1,fail=EIO:open:.record.tmp:2", 1);
  for (int attempt = 0; attempt < 2; ++attempt) {
    CHECK(two.SealTogether(1).transient() && two.seal == Seal::kUnseen);
  }
  CHECK_OK(two.SealTogether(1));
  CHECK(two.seal == Seal::kSeen);
}

// Without memory nobody knows who writes the records: another rank may.
void WithoutMemoryAnotherRankMayWriteTheRecords() {
  Two two("no-memory:open:.record.tmp:1", 1, Seal::kUnseen);
  bool thrown = false;
  try {
    (void)two.SealTogether(1).ok();
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  CHECK(thrown && two.seal == Seal::kSeen);
}

// Where the node's file can't be made, a rank that has written its own record has not failed.
void ARankWithARecordOfItsOwnHasNotFailed() {
  for (const uint32_t rank : {0U, 1U}) {
    Two two("fail=EROFS:open:ranks-:1+", rank);
    CHECK_OK(two.SealTogether(rank));
    CHECK(two.seal == Seal::kSeen && !two.HasFailed(rank) && two.Exists(Join(PartialName(1, Id{}), RecordName(rank))));
  }
}

// Rank 0 decides, and answers nobody.
void RankZeroWithoutARecordHasFailed() {
  Two two("fail=EROFS:open:.record.tmp:1+", 0);
  CHECK(!two.SealTogether(0).ok() && two.seal == Seal::kUnseen && !two.HasFailed(0));
}

// A step that has ended may come again: the file of its records may be another rank's then.
void AStepThatHasEndedBeginsAnew() {
  Two two("", 1);
  CHECK_OK(two.SealTogether(1));
  two.meeting.Ended(1, false);
  std::unique_ptr<File> file;
  CHECK_OK(Env::Posix()->Open(two.Temporary(1), OpenMode::kNew, &file));
  CHECK_OK(two.SealTogether(1));
  CHECK(two.seal == Seal::kByAnother);
}

// Of a step that was sealed, and is nowhere, the newer ones tell. As long as these can't be looked at, nothing does.
void AStepOfWhichNothingCanBeSeenIsPending() {
  for (const std::string& fault : {std::string("stat:.partial-"), "open:" + StepName(2) + "/manifest.json"}) {
    Two two("fail=EIO:" + fault + ":1", 1);
    for (const int64_t step : {1, 2}) {
      for (const uint32_t rank : {0U, 1U}) two.Ranks::Seal(rank, step);
      two.meeting.SealedByAnother(step);
    }
    two.CommitStep(1);
    two.CommitStep(2);
    CHECK_OK(PosixStore(Env::Posix(), two.run.path()).Remove(1, Id{}));
    CHECK(two.meeting.Look(1, &two.verdict, &two.why).transient() && two.verdict == Verdict::kPending);
    CHECK_OK(two.meeting.Look(1, &two.verdict, &two.why));
    CHECK(two.verdict == Verdict::kCommitted);
  }
}

// The rank is named once, whatever the reason says.
void AReasonWithoutARankGetsOne() {
  Two two("", 1);
  CHECK_OK(two.meetings[0]->Failed(1, "a mount has failed: gone"));
  CHECK_OK(two.meeting.Look(1, &two.verdict, &two.why));
  CHECK(two.verdict == Verdict::kFailed);
  CHECK_EQ(two.why, Join(two.run.path(), StepName(1)) + ": rank 0 failed: a mount has failed: gone");
}

void ARollThatCanNotBeReadIsNoRoll() {
  Two two("fail=EIO:list:.partial-:1", 1);
  PartialState roll;
  std::string failure = "of another step";
  CHECK(two.meeting.Roll(1, &roll, &failure).transient());
  failure = "of another step";
  CHECK_OK(two.meeting.Roll(1, &roll, &failure));
  CHECK(failure.empty() && roll.exists && roll.present.empty());
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  ARecordWhoseSyncFailsIsNotSealed();
  AFileOfRecordsThatCanNotBeOpenedAgainIsNotSealed();
  WithoutMemoryAnotherRankMayWriteTheRecords();
  ARankWithARecordOfItsOwnHasNotFailed();
  RankZeroWithoutARecordHasFailed();
  AStepThatHasEndedBeginsAnew();
  AStepOfWhichNothingCanBeSeenIsPending();
  AReasonWithoutARankGetsOne();
  ARollThatCanNotBeReadIsNoRoll();
}
