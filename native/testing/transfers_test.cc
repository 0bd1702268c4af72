// Several checkpoints on their way to the external store at once: they end in any order, and the newest complete one
// wins.
#include <chrono>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "deepfreeze/deepfreeze.h"
#include "format/names.h"
#include "testing/check.h"
#include "testing/engine_ranks.h"

namespace deepfreeze {
namespace {

// The first step's one write takes long, so the later ones are committed before it; and it is committed all the same.
void AnOlderCheckpointMayBeCommittedAfterANewerOne() {
  EngineRanks ranks({"", kSlowFirst}, 3, 3);
  for (int64_t step = 1; step <= 3; ++step) ranks.SubmitAll(step);
  ranks.AwaitCommit(3);
  CHECK(!ranks.Exists(StepName(1)));
  for (const size_t rank : {0, 1}) {
    for (int64_t step = 1; step <= 3; ++step) CHECK(ranks.End(rank, step) == Code::kOk);
  }
  ranks.Drain();
  ranks.CheckRun({1, 2, 3});
}

// With one transfer the order stays, also where the first step takes long.
void WithOneTransferTheOldestIsCommittedFirst() {
  EngineRanks ranks({kSlowFirst}, 1, 3);
  for (int64_t step = 1; step <= 3; ++step) ranks.SubmitAll(step);
  ranks.AwaitCommit(2);
  CHECK(ranks.Exists(StepName(1)));
  ranks.Drain();
  ranks.CheckRun({1, 2, 3});
}

// What retention no longer wants is given up on all ranks: also by one that has not begun to write it.
void AnOlderCheckpointIsGivenUpOnAllRanks() {
  for (const char* slow : {"delay=300:pwrite:step-0000000001.:1", "delay=300:mkdir:step-0000000001.:1",
                           "delay=300:fdatasync:step-0000000001.:1", "delay=300:rename:step-0000000001.:1"}) {
    for (const size_t which : {0, 1}) {
      std::vector<std::string> plans{"", ""};
      plans[which] = slow;
      EngineRanks ranks(plans, 2, 2);
      for (int64_t step = 1; step <= 2; ++step) ranks.SubmitAll(step);
      ranks.AwaitCommit(2);
      CHECK_OK(ranks.rank(0)->Supersede(1, 2));
      const Code first = ranks.End(0, 1);
      const Code second = ranks.End(1, 1);
      CHECK(first == Code::kOk || first == Code::kSuperseded);
      // A rank that comes late may find the step gone, and take it for one that was committed and removed.
      CHECK(second == first || second == Code::kOk);
      ranks.DrainFromTheLast();
      if (first == Code::kOk) {
        ranks.CheckRun({1, 2});
        continue;
      }
      const std::map<int64_t, Report> ends = ranks.Ends(0);
      CHECK_EQ(ends.at(1).superseded_by, 2);
      CHECK(ends.at(2).code == Code::kOk && ends.at(1).released);
      ranks.CheckRun({2});
    }
  }
}

// A single rank needs nobody's answer, so what it gives up is gone at once.
void WhatASingleRankGivesUpIsGoneAtOnce() {
  EngineRanks ranks({kSlowFirst}, 2, 2);
  for (int64_t step = 1; step <= 2; ++step) ranks.SubmitAll(step);
  ranks.AwaitCommit(2);
  CHECK_OK(ranks.rank(0)->Supersede(1, 2));
  CHECK(ranks.End(0, 1) == Code::kSuperseded);
  ranks.Drain();
  ranks.CheckRun({2});
}

// Committed is committed: who asks too late gets what there is.
void ACommittedCheckpointIsNotGivenUp() {
  EngineRanks ranks({"", ""}, 2, 2);
  for (int64_t step = 1; step <= 2; ++step) ranks.SubmitAll(step);
  ranks.Drain();
  CHECK_OK(ranks.rank(0)->Supersede(1, 2));
  CHECK(ranks.rank(0)->Supersede(2, 2).code() == Code::kInvalid);
  CHECK(ranks.rank(1)->Supersede(1, 2).code() == Code::kInvalid);
  CHECK(ranks.End(0, 1) == Code::kOk);
  ranks.CheckRun({1, 2});
}

// The ranks agree on a step that none has begun to write: it ends at once, and the store never hears of it.
void AStepThatAllRanksHoldGivesWay() {
  for (const bool local : {false, true}) {
    TemporaryDir first;
    TemporaryDir second;
    const std::vector<std::string> locals{first.path(), second.path()};
    EngineRanks ranks({kSlowFirst, kSlowFirst}, 1, 3, local ? locals : std::vector<std::string>());
    for (int64_t step = 1; step <= 3; ++step) ranks.SubmitAll(step);
    for (const size_t rank : {0, 1}) {
      CHECK(!ranks.rank(rank)->Hold(1));  // it is the oldest
      CHECK(!ranks.rank(rank)->Hold(9));
      CHECK(ranks.rank(rank)->Hold(3));
    }
    CHECK_OK(ranks.rank(0)->Supersede(3, 4));  // which says nothing of a step that is held
    for (const size_t rank : {0, 1}) CHECK_OK(ranks.rank(rank)->Replace(3, 4));
    CHECK(ranks.rank(1)->Replace(3, 4).code() == Code::kInvalid);
    ranks.SubmitAll(4);
    ranks.Drain();
    for (const size_t rank : {0, 1}) {
      CHECK(ranks.End(rank, 3) == Code::kSuperseded);
      CHECK_EQ(ranks.Ends(rank).at(3).superseded_by, 4);
    }
    ranks.CheckRun({1, 2, 4});
  }
}

// A held step waits, and goes on when it is let go, or when the engine is drained.
void AHeldStepGoesOn() {
  for (const bool drains : {false, true}) {
    EngineRanks ranks({"delay=50:pwrite:step-0000000001.:1"}, 1, 3);
    for (int64_t step = 1; step <= 2; ++step) ranks.SubmitAll(step);
    CHECK(ranks.rank(0)->Hold(2));
    ranks.AwaitCommit(1);
    CHECK(ranks.rank(0)->Wait(2, DF_EXTERNAL, 50).code() == Code::kTimeout);
    if (drains) {
      ranks.Drain();
    } else {
      CHECK(!ranks.rank(0)->Hold(-1));
    }
    CHECK(ranks.End(0, 2) == Code::kOk);
  }
}

// A loss of power may take the newest commit, so nothing older is removed before a still newer one is durable: a commit
// of an older step says nothing of it.
void ACommitThatIsNotKnownToBeDurableIsOnlyMadeUpForByANewerOne() {
  // Rank 0 syncs two partial directories of step 2, and then the run's, whose path has no "step".
  EngineRanks ranks({"delay=300:pwrite:step-0000000001.:1,fail=EIO:fsync_dir::3"}, 2, 3);
  for (int64_t step = 1; step <= 2; ++step) ranks.SubmitAll(step);
  ranks.AwaitCommit(2);
  ranks.AwaitCommit(1);
  CHECK_OK(ranks.rank(0)->Remove({1}));
  ranks.Drain();
  CHECK(ranks.Exists(StepName(1)));
  ranks.SubmitAll(3);
  ranks.AwaitCommit(3);
  ranks.Drain();
  ranks.CheckRun({2, 3});
}

// A loss of power may take the newest commit, and then the older checkpoint is the newest one.
void NoneIsGivenUpForACommitThatIsNotKnownToBeDurable() {
  EngineRanks ranks({"delay=300:pwrite:step-0000000001.:1,fail=EIO:fsync_dir::3"}, 2, 3);
  for (int64_t step = 1; step <= 2; ++step) ranks.SubmitAll(step);
  ranks.AwaitCommit(2);
  CHECK_OK(ranks.rank(0)->Supersede(1, 2));
  CHECK(ranks.End(0, 1) == Code::kOk);
  ranks.Drain();
  ranks.CheckRun({1, 2});
}

// A rank that the store refuses a step again and again learns before its next try that the step is given up.
void ARankThatIsBehindDoesNotGoOnWithWhatIsGivenUp() {
  EngineRanks ranks({"", "fail=EIO:pwrite:step-0000000001.:1+"}, 2, 2);
  for (int64_t step = 1; step <= 2; ++step) ranks.SubmitAll(step);
  ranks.AwaitCommit(2);
  CHECK_OK(ranks.rank(0)->Supersede(1, 2));
  CHECK(ranks.End(0, 1) == Code::kSuperseded);
  CHECK(ranks.rank(1)->Wait(1, DF_EXTERNAL, kLong / 4).code() == Code::kSuperseded);  // it may try for kLong
  ranks.DrainFromTheLast();
  ranks.CheckRun({2});
}

// What a slow rank can't write of a step that rank 0 has given up is no failure.
void AnErrorOfAStepThatIsGivenUpIsNone() {
  EngineRanks ranks({kSlowFirst, "delay=1000:pwrite:step-0000000001.:1,fail=ENOSPC:pwrite:step-0000000001.:1+"}, 2, 2);
  for (int64_t step = 1; step <= 2; ++step) ranks.SubmitAll(step);
  ranks.AwaitCommit(2);
  CHECK_OK(ranks.rank(0)->Supersede(1, 2));
  CHECK(ranks.End(0, 1) == Code::kSuperseded);
  CHECK(ranks.End(1, 1) == Code::kSuperseded);
  ranks.DrainFromTheLast();
  ranks.CheckRun({2});
}

// A checkpoint that lags on one rank holds up no other, until as many are uncommitted as may be. Then the wait names
// the rank.
void ARankThatLagsIsNamedWhenNoMoreMayBeUncommitted() {
  EngineRanks ranks({"", "", ""}, 2, 3);
  for (int64_t step = 1; step <= 3; ++step) {
    for (const size_t rank : {0, 1}) ranks.Submit(rank, step);
  }
  const std::string bytes = BytesOf(0, 4);
  const Status full = ranks.rank(0)->Submit(4, {{bytes.data(), bytes.size(), 0}}, "", 300);
  CHECK(full.code() == Code::kTimeout);
  CHECK(full.message().find("rank 2") != std::string::npos);
  for (int64_t step = 1; step <= 3; ++step) ranks.Submit(2, step);
  ranks.Drain();
  ranks.CheckRun({1, 2, 3});
}

// Trainings in which everything takes any time: what is reported as committed is there, whole.
void AnyOrderOfEventsLeavesTheCheckpointsThatWereCommitted() {
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  const auto below = [&](unsigned n) { return static_cast<int64_t>(random() % n); };
  constexpr const char* kOps[] = {"pwrite", "fdatasync", "mkdir", "rename", "fsync_dir", "open"};
  for (int training = 0; training < 12; ++training) {
    const auto world = static_cast<size_t>(1 + below(3));
    std::vector<std::string> plans(world);
    for (std::string& plan : plans) {
      for (int n = 0; n < 6; ++n) {
        plan += (plan.empty() ? "" : ",") + ("delay=" + std::to_string(1 + below(20)) + ":" + kOps[below(6)]) +
                ":step-000000000" + std::to_string(1 + below(8)) + ".:1+";
      }
    }
    EngineRanks ranks(plans, static_cast<uint32_t>(1 + below(4)), 4);
    std::map<int64_t, Report> ends;
    const auto take = [&] {
      for (const auto& [step, report] : ranks.Ends(0)) ends[step] = report;
    };
    for (int64_t step = 1; step <= 9; ++step) {
      ranks.SubmitAll(step);
      take();
      int64_t newest = -1;
      for (const auto& [ended, report] : ends) newest = report.code == Code::kOk ? ended : newest;
      const int64_t older = step - below(4);
      if (below(2) == 0 && older < newest) CHECK_OK(ranks.rank(0)->Supersede(older, newest));
      if (below(3) == 0) std::this_thread::sleep_for(std::chrono::milliseconds(below(10)));
    }
    ranks.Drain();
    take();
    CHECK_EQ(ends.size(), 9U);
    for (const auto& [step, report] : ends) {
      CHECK(report.code == Code::kOk || report.code == Code::kSuperseded);
      if (report.code == Code::kSuperseded) CHECK(report.superseded_by > step);
      if (report.code == Code::kOk) ranks.CheckBytes(step);
    }
    CHECK(ends.at(9).code == Code::kOk);  // nothing is newer
    for (size_t rank = 1; rank < world; ++rank) {
      for (const auto& [step, report] : ranks.Ends(rank)) {
        CHECK(report.code == Code::kOk || report.code == Code::kSuperseded);
        if (ends.at(step).code == Code::kOk) CHECK(report.code == Code::kOk);
      }
    }
  }
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  AnOlderCheckpointMayBeCommittedAfterANewerOne();
  WithOneTransferTheOldestIsCommittedFirst();
  AnOlderCheckpointIsGivenUpOnAllRanks();
  WhatASingleRankGivesUpIsGoneAtOnce();
  ACommittedCheckpointIsNotGivenUp();
  AStepThatAllRanksHoldGivesWay();
  AHeldStepGoesOn();
  ACommitThatIsNotKnownToBeDurableIsOnlyMadeUpForByANewerOne();
  NoneIsGivenUpForACommitThatIsNotKnownToBeDurable();
  ARankThatIsBehindDoesNotGoOnWithWhatIsGivenUp();
  AnErrorOfAStepThatIsGivenUpIsNone();
  ARankThatLagsIsNamedWhenNoMoreMayBeUncommitted();
  AnyOrderOfEventsLeavesTheCheckpointsThatWereCommitted();
}
