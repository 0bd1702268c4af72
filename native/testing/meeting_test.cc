// Where ranks meet: what each learns of the others, and what the looks cost with many ranks.
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "store/dir_meeting.h"
#include "testing/fault_env.h"
#include "testing/faults_of.h"
#include "testing/simulated_ranks.h"

namespace deepfreeze {
namespace {

void ARankSeesWhatRankZeroHasDecided() {
  Ranks ranks(3);
  std::string why;
  for (int64_t step = 1; step <= 2; ++step) {
    ranks.SealAll(step);
    CHECK(ranks.Look(1, step, &why) == Verdict::kPending);
    CHECK_EQ(ranks.Roll(0, step, 3), "");
  }
  ranks.CommitStep(1);
  CHECK(ranks.Look(1, 1, &why) == Verdict::kCommitted);
  CHECK(ranks.Look(1, 2, &why) == Verdict::kPending && why.empty());
  CHECK_OK(ranks.meetings[0]->Failed(2, "rename X: Read-only file system"));
  const std::string failure = Join(ranks.run.path(), StepName(2)) + ": rank 0 failed: rename X: Read-only file system";
  for (const uint32_t rank : {1, 2}) {
    CHECK(ranks.Look(rank, 2, &why) == Verdict::kFailed);
    CHECK_EQ(why, failure);
  }
  // Rank 2 comes to step 1 late.
  CHECK(ranks.Look(2, 1, &why) == Verdict::kCommitted);
}

void ARankThatGivesUpTellsRankZeroWhichTellsAll() {
  Ranks ranks(3);
  ranks.Write(1);
  for (const uint32_t rank : {0, 2}) ranks.Seal(rank, 1);
  CHECK_OK(ranks.meetings[1]->Failed(1, "no space"));
  std::string why;
  CHECK(ranks.Look(2, 1, &why) == Verdict::kPending);  // only rank 0 decides
  const std::string failure = ranks.Roll(0, 1, 2);
  CHECK_EQ(failure, Join(ranks.run.path(), StepName(1)) + ": rank 1 failed: no space");
  CHECK_OK(ranks.meetings[0]->Failed(1, failure));
  CHECK(ranks.Look(2, 1, &why) == Verdict::kFailed);
  CHECK_EQ(why, failure);
  // A rank that calls the roll sees it without rank 0's verdict.
  Ranks others(3);
  others.Write(1);
  others.Seal(2, 1);
  CHECK_OK(others.meetings[1]->Failed(1, "no space"));
  CHECK_EQ(others.Roll(2, 1, 1), Join(others.run.path(), StepName(1)) + ": rank 1 failed: no space");
  CHECK(others.Exists(Join(PartialName(1, Id{}), FailedName(2))));  // its answer
}

void WhatAFailedStepHasLeftStaysUntilAllKnow() {
  Ranks ranks(3);
  ranks.SealAll(1);
  CHECK_OK(ranks.meetings[0]->Failed(1, "no space"));
  ranks.SealAll(2);
  ranks.CommitStep(2);
  std::string why;
  for (const uint32_t rank : {1, 2}) {
    ranks.CleanUpAfter(2);
    CHECK(ranks.Exists(PartialName(1, Id{})) && ranks.Exists(FailedStepName(1, Id{})));
    CHECK(ranks.Look(rank, 1, &why) == Verdict::kFailed);
  }
  ranks.CleanUpAfter(2);
  CHECK(!ranks.Exists(PartialName(1, Id{})) && !ranks.Exists(FailedStepName(1, Id{})));
}

// A rank that can't answer does not make failed steps pile up: as many stay as it can have unfinished, here two.
void OfManyFailedStepsTheNewestStay() {
  Ranks ranks(2);
  for (int64_t step = 1; step <= 4; ++step) {
    ranks.SealAll(step);
    CHECK_OK(ranks.meetings[0]->Failed(step, "no space"));
  }
  ranks.SealAll(5);
  ranks.CommitStep(5);
  ranks.CleanUpAfter(5);
  for (int64_t step = 1; step <= 4; ++step) {
    CHECK_EQ(ranks.Exists(PartialName(step, Id{})), step > 2);
    CHECK_EQ(ranks.Exists(FailedStepName(step, Id{})), step > 2);
  }
}

// A link in the place of a partial directory is not the library's, and stays where it is.
void WhatIsNoDirectoryStays() {
  Ranks ranks(1);
  const std::string link = Join(ranks.run.path(), PartialName(1, Id{}));
  CHECK(::symlink("/nowhere", link.c_str()) == 0);
  CHECK_OK(ranks.meetings[0]->Failed(1, "a link"));
  ranks.SealAll(2);
  ranks.CommitStep(2);
  ranks.CleanUpAfter(2);
  CHECK(ranks.Exists(PartialName(1, Id{})) && !ranks.Exists(FailedStepName(1, Id{})));
}

// Room is made for a step while an older one is not decided.
void OnlyWhatHasFailedIsRemovedToMakeRoom() {
  Ranks ranks(1);
  ranks.SealAll(1);
  ranks.SealAll(2);
  CHECK_OK(ranks.meetings[0]->Failed(1, "no space"));
  MadeRoom made;
  CHECK_OK(PosixStore(Env::Posix(), ranks.run.path()).MakeRoom(CleanUpRequest{3, Id{}, 1, 2, {}}, &made));
  CHECK(made.removed && !made.awaits && !ranks.Exists(PartialName(1, Id{})) && !ranks.Exists(FailedStepName(1, Id{})));
  CHECK(ranks.Exists(PartialName(2, Id{})));
}

// There was no room to tell of the failure, so nobody is taken to know of it.
void AStepThatFailedUntoldIsNotTakenForACommittedOne() {
  Ranks ranks(2);
  ranks.SealAll(1);
  ranks.SealAll(2);
  ranks.CommitStep(2);
  ranks.CleanUpAfter(2);
  std::string why;
  CHECK(ranks.Look(1, 1, &why) == Verdict::kPending);
}

void AStepThatWasCommittedReplacedAndRemovedIsCommitted() {
  Ranks ranks(2);
  for (int64_t step = 1; step <= 4; ++step) ranks.SealAll(step);
  std::string why;
  CHECK(ranks.Look(1, 1, &why) == Verdict::kPending);
  for (int64_t step = 1; step <= 3; ++step) {
    ranks.CommitStep(step);
    if (step > 1) CHECK_OK(PosixStore(Env::Posix(), ranks.run.path()).Remove(step - 1, Id{}));
  }
  for (int64_t step = 1; step <= 3; ++step) CHECK(ranks.Look(1, step, &why) == Verdict::kCommitted);
  CHECK(ranks.Look(1, 4, &why) == Verdict::kPending);
}

// Steps need not be committed in their order.
void AStepThatIsCommittedAfterANewerOneIsCommitted() {
  for (const bool removed : {false, true}) {
    Ranks ranks(2);
    for (int64_t step = 1; step <= 3; ++step) ranks.SealAll(step);
    std::string why;
    ranks.CommitStep(3);
    ranks.CleanUpAfter(3, {1, 2});
    CHECK(ranks.Look(1, 3, &why) == Verdict::kCommitted);
    for (const int64_t step : {1, 2}) CHECK(ranks.Look(1, step, &why) == Verdict::kPending);
    ranks.CommitStep(1);
    if (removed) CHECK_OK(PosixStore(Env::Posix(), ranks.run.path()).Remove(1, Id{}));
    CHECK(ranks.Look(1, 1, &why) == Verdict::kCommitted);
    CHECK(ranks.Look(1, 2, &why) == Verdict::kPending);
  }
}

// What nobody works on any more goes, and what is on its way stays, although both are older than the newest commit.
void OnlyWhatIsOnItsWayStays() {
  Ranks ranks(1);
  for (int64_t step = 1; step <= 5; ++step) ranks.SealAll(step);
  ranks.CommitStep(5);
  ranks.CleanUpAfter(5, {2});  // of the others two may stay, for nobody has told that they have failed
  for (int64_t step = 1; step <= 4; ++step) CHECK_EQ(ranks.Exists(PartialName(step, Id{})), step != 1);
}

void AStepThatIsGivenUpForANewerOneHasNotFailed() {
  Ranks ranks(3);
  for (int64_t step = 1; step <= 2; ++step) ranks.SealAll(step);
  ranks.CommitStep(2);
  CHECK_OK(ranks.meetings[0]->Superseded(1, 2));
  int64_t by = 0;
  for (const uint32_t rank : {1, 2}) {
    ranks.CleanUpAfter(2);
    CHECK(ranks.Exists(PartialName(1, Id{})));  // until every rank knows
    std::string why;
    CHECK(ranks.Look(rank, 1, &why) == Verdict::kSuperseded);
    CHECK(ParseSuperseded(why, &by) && by == 2);
  }
  ranks.CleanUpAfter(2);
  CHECK(!ranks.Exists(PartialName(1, Id{})) && !ranks.Exists(FailedStepName(1, Id{})));
}

// A rank that has nothing of the step yet answers all the same, so that what is told of it can go.
void AStepThatIsGivenUpBeforeItHasBegunIsAnswered() {
  Ranks ranks(2);
  CHECK_OK(ranks.meetings[0]->Superseded(1, 2));
  std::string why;
  CHECK(ranks.Look(1, 1, &why) == Verdict::kSuperseded);
  CHECK(ranks.Exists(Join(PartialName(1, Id{}), FailedName(1))));
}

// What a rank answers to rank 0 is no failure of its own, and an empty text is none where a newer step is committed.
void NobodyTakesAnAnswerForAFailure() {
  for (const bool empty : {false, true}) {
    Ranks ranks(3);
    for (int64_t step = 1; step <= 2; ++step) ranks.SealAll(step);
    ranks.CommitStep(2);
    CHECK_OK(ranks.meetings[0]->Superseded(1, 2));
    if (empty) {
      std::unique_ptr<File> file;
      const std::string told = Join(ranks.run.path(), FailedStepName(1, Id{}));
      CHECK_OK(Env::Posix()->Open(told, OpenMode::kTruncate, &file));
    }
    std::string why;
    CHECK(ranks.Look(1, 1, &why) == Verdict::kSuperseded);
    CHECK_EQ(ranks.Roll(2, 1, 3), "");
    CHECK_EQ(ranks.Roll(0, 1, 3), "");
    CHECK(ranks.Look(2, 1, &why) == Verdict::kSuperseded);
  }
}

// Without a text the commits of newer steps tell: none, and the step has failed; one that can't be looked at, and
// nothing is known.
void AnEmptyTextSaysWhatTheNewerStepsDo() {
  Ranks ranks(2);
  for (int64_t step = 1; step <= 2; ++step) ranks.SealAll(step);
  CHECK_OK(ranks.meetings[0]->Failed(1, "no space"));
  std::unique_ptr<File> file;
  CHECK_OK(Env::Posix()->Open(Join(ranks.run.path(), FailedStepName(1, Id{})), OpenMode::kTruncate, &file));
  std::string why;
  CHECK(ranks.Look(1, 1, &why) == Verdict::kFailed);
  ranks.CommitStep(2);
  FaultEnv env(Env::Posix(), FaultsOf("fail=EIO:open:" + StepName(2) + "/manifest.json:1"), "");
  DirMeeting meeting(&env, ranks.run.path(), Ranks::At(0, 1, 2));
  for (const int64_t step : {1, 2}) meeting.SealedByAnother(step);
  Verdict verdict = Verdict::kFailed;
  CHECK(meeting.Look(1, &verdict, &why).transient() && verdict == Verdict::kPending);
  CHECK_OK(meeting.Look(1, &verdict, &why));
  CHECK(verdict == Verdict::kSuperseded);
}

// As long as rank 0's file can't be looked for, or its text can't be read, nothing is known of the step.
void AFileThatCanNotBeLookedAtSaysNothing() {
  for (const std::string call : {"stat", "pread"}) {
    Ranks ranks(2);
    ranks.SealAll(1);
    CHECK_OK(ranks.meetings[0]->Superseded(1, 2));
    FaultEnv env(Env::Posix(), FaultsOf("fail=EIO:" + call + ":.failed-:1"), "");
    DirMeeting meeting(&env, ranks.run.path(), Ranks::At(0, 1, 2));
    Verdict verdict = Verdict::kFailed;
    std::string why;
    CHECK(meeting.Look(1, &verdict, &why).transient() && verdict == Verdict::kPending);
    CHECK_OK(meeting.Look(1, &verdict, &why));
    CHECK(verdict == Verdict::kSuperseded);
  }
}

// Without newer steps that are committed, the number that stands for none is no step.
void StepZeroFailsAsAnyOther() {
  Ranks ranks(2);
  ranks.SealAll(0);
  CHECK_OK(ranks.meetings[0]->Failed(0, "no space"));
  std::string why;
  CHECK(ranks.Look(1, 0, &why) == Verdict::kFailed);
  CHECK_EQ(why, Join(ranks.run.path(), StepName(0)) + ": rank 0 failed: no space");
}

void OnlyTheWholeTextTellsThatAStepIsSuperseded() {
  int64_t by = 0;
  for (const char* text : {"", "superseded", "superseded by step ", "superseded by step x", "superseded by step 4 ",
                           "a: superseded by step 4", "superseded by step 99999999999999999999"}) {
    CHECK(!ParseSuperseded(text, &by));
  }
  CHECK(ParseSuperseded(SupersededText(1234567890123456), &by) && by == 1234567890123456);
}

// A rank that has nothing of the step yet asks of it.
void AStepThatIsNotThereYetIsNotTakenForACommittedOne() {
  Ranks ranks(2);
  ranks.SealAll(2);
  ranks.CommitStep(2);
  std::string why;
  CHECK(ranks.Look(1, 2, &why) == Verdict::kCommitted);
  CHECK(ranks.Look(1, 1, &why) == Verdict::kPending);
}

// Another attempt's checkpoint of the step, or its failure, is no verdict.
void AnotherAttemptDecidesNothing() {
  Ranks ranks(2);
  Identity other = Ranks::At(1, 0, 2);
  other.attempt[0] = 1;
  CHECK_OK(DirMeeting(Env::Posix(), ranks.run.path(), other).Failed(1, "no space"));
  ranks.SealAll(1);
  std::string why;
  CHECK(ranks.Look(1, 1, &why) == Verdict::kPending);
}

void ALookCostsTheSameHoweverManyRanksAndStepsThereAre() {
  std::vector<uint64_t> costs;
  for (const uint32_t world : {2U, 40U}) {
    Ranks ranks(world);
    ranks.SealAll(100);
    for (int64_t step = 0; step < world; ++step) {
      CHECK_OK(Env::Posix()->MakeDir(Join(ranks.run.path(), StepName(step)), 0777));
    }
    CountEnv& env = *ranks.envs[1];
    const uint64_t before = env.metadata + env.refreshes;
    std::string why;
    CHECK(ranks.Look(1, 100, &why) == Verdict::kPending);
    costs.push_back(env.metadata + env.refreshes - before);
    CHECK_EQ(env.lists, 0U);
  }
  CHECK(costs[0] == costs[1] && costs[0] <= 3);
}

// A look at a step asks nothing about newer steps whose end the rank has seen.
void ALookCostsTheSameHoweverManyStepsHaveEnded() {
  std::vector<uint64_t> costs;
  for (const int64_t newest : {2, 40}) {
    Ranks ranks(2);
    std::string why;
    for (int64_t step = 1; step <= newest; ++step) ranks.SealAll(step);
    for (int64_t step = 2; step <= newest; ++step) {
      CHECK_OK(ranks.meetings[0]->Failed(step, "no space"));
      CHECK(ranks.Look(1, step, &why) == Verdict::kFailed);
    }
    std::filesystem::remove_all(Join(ranks.run.path(), PartialName(1, Id{})));
    CountEnv& env = *ranks.envs[1];
    const uint64_t before = env.calls();
    CHECK(ranks.Look(1, 1, &why) == Verdict::kPending);
    costs.push_back(env.calls() - before);
  }
  CHECK(costs[0] == costs[1]);
}

void ABeatCostsOneRename() {
  Ranks ranks(1);
  ranks.Write(1);
  CountEnv& env = *ranks.envs[0];
  for (uint64_t beat = 1; beat <= 3; ++beat) {
    const uint64_t before = env.calls();
    ranks.meetings[0]->Beat(1, beat);
    CHECK_EQ(env.calls() - before, 1U);
    for (uint64_t other = 1; other <= 3; ++other) {
      CHECK_EQ(ranks.Exists(Join(PartialName(1, Id{}), AliveName(0, other))), other == beat);
    }
  }
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  ARankSeesWhatRankZeroHasDecided();
  ARankThatGivesUpTellsRankZeroWhichTellsAll();
  WhatAFailedStepHasLeftStaysUntilAllKnow();
  OfManyFailedStepsTheNewestStay();
  WhatIsNoDirectoryStays();
  OnlyWhatHasFailedIsRemovedToMakeRoom();
  AStepThatFailedUntoldIsNotTakenForACommittedOne();
  AStepThatWasCommittedReplacedAndRemovedIsCommitted();
  AStepThatIsCommittedAfterANewerOneIsCommitted();
  OnlyWhatIsOnItsWayStays();
  AStepThatIsGivenUpForANewerOneHasNotFailed();
  AStepThatIsGivenUpBeforeItHasBegunIsAnswered();
  NobodyTakesAnAnswerForAFailure();
  AnEmptyTextSaysWhatTheNewerStepsDo();
  AFileThatCanNotBeLookedAtSaysNothing();
  StepZeroFailsAsAnyOther();
  OnlyTheWholeTextTellsThatAStepIsSuperseded();
  AStepThatIsNotThereYetIsNotTakenForACommittedOne();
  AnotherAttemptDecidesNothing();
  ALookCostsTheSameHoweverManyRanksAndStepsThereAre();
  ALookCostsTheSameHoweverManyStepsHaveEnded();
  ABeatCostsOneRename();
}
