// Where ranks meet: what each learns of the others, and what the looks cost with many ranks.
#include <cmath>
#include <map>
#include <memory>
#include <queue>
#include <thread>
#include <vector>

#include "base/crc32c.h"
#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "engine/pauses.h"
#include "format/names.h"
#include "store/commit.h"
#include "store/dir_meeting.h"
#include "store/records.h"
#include "testing/check.h"
#include "testing/count_env.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kPage = 4096;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint32_t kMany = 64;  // a sanitizer is slow, and has nothing more to find with more
#else
constexpr uint32_t kMany = 1024;
#endif

// Ranks of one attempt, without engines, each with an Env of its own. A rank has one page of the file.
struct Ranks {
  TemporaryDir run{"/dev/shm"};
  const std::string page = std::string(kPage, 'd');
  const uint32_t crc = Crc32c(0, page.data(), kPage);
  std::vector<std::unique_ptr<CountEnv>> envs;
  std::vector<std::unique_ptr<DirMeeting>> meetings;

  explicit Ranks(uint32_t world) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      envs.push_back(std::make_unique<CountEnv>(Env::Posix()));
      meetings.push_back(std::make_unique<DirMeeting>(envs.back().get(), run.path(), At(1, rank, world)));
    }
  }

  static Identity At(int64_t step, uint32_t rank, uint32_t world) {
    Identity identity;
    identity.step = step;
    identity.rank = rank;
    identity.world = world;
    identity.file_size = kPage * world;
    return identity;
  }
  uint32_t world() const { return static_cast<uint32_t>(meetings.size()); }

  // Writes the parts of all ranks.
  void Write(int64_t step) {
    PartialWriter writer;
    CHECK_OK(writer.Open(Env::Posix(), run.path(), At(step, 0, world())));
    for (uint32_t rank = 0; rank < world(); ++rank)
      CHECK_OK(WriteFull(writer.file(), kPage * rank, page.data(), kPage));
    CHECK_OK(writer.Sync());
  }

  // The rank's part, which is written, is durable.
  void Seal(uint32_t rank, int64_t step) {
    bool perhaps = false;
    const Record record{At(step, rank, world()), {{kPage * rank, kPage, crc}}, "", ""};
    CHECK_OK(meetings[rank]->Sealed(record, &perhaps));
    CHECK(perhaps);
  }

  void SealAll(int64_t step) {
    Write(step);
    for (uint32_t rank = 0; rank < world(); ++rank) Seal(rank, step);
  }

  // What rank 0 does when all are there.
  void CommitStep(int64_t step) {
    CommitRequest request;
    request.run_dir = run.path();
    request.step = step;
    CommitOutcome outcome;
    CHECK_OK(Commit(envs[0].get(), request, &outcome));
    RemoveRecords(envs[0].get(), run.path(), step);
  }

  void CleanUpAfter(int64_t step) {
    CHECK_OK(CleanUp(envs[0].get(), CleanUpRequest{run.path(), step, Id{}, world(), 2}));
  }

  Verdict Look(uint32_t rank, int64_t step, std::string* why) {
    Verdict verdict = Verdict::kPending;
    CHECK_OK(meetings[rank]->Look(step, &verdict, why));
    return verdict;
  }

  std::string Roll(uint32_t rank, int64_t step, size_t present) {
    PartialState roll;
    std::string failure;
    CHECK_OK(meetings[rank]->Roll(step, &roll, &failure));
    CHECK_EQ(roll.present.size(), present);
    return failure;
  }

  bool Exists(const std::string& name) const {
    FileInfo info;
    CHECK_OK(Env::Posix()->Stat(Join(run.path(), name), &info));
    return info.exists;
  }
};

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

// Room is made for a step while an older one is not decided.
void OnlyWhatHasFailedIsRemovedToMakeRoom() {
  Ranks ranks(1);
  ranks.SealAll(1);
  ranks.SealAll(2);
  CHECK_OK(ranks.meetings[0]->Failed(1, "no space"));
  bool removed = false;
  CHECK_OK(RemoveFailed(Env::Posix(), CleanUpRequest{ranks.run.path(), 3, Id{}, 1, 2}, &removed));
  CHECK(removed && !ranks.Exists(PartialName(1, Id{})) && !ranks.Exists(FailedStepName(1, Id{})));
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
    if (step > 1) CHECK_OK(RemoveStep(Env::Posix(), ranks.run.path(), Id{}, step - 1));
  }
  for (int64_t step = 1; step <= 3; ++step) CHECK(ranks.Look(1, step, &why) == Verdict::kCommitted);
  CHECK(ranks.Look(1, 4, &why) == Verdict::kPending);
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

// The protocol alone, in a time of its own: `world` ranks come within a second, in any order, and the commit takes a
// tenth of a second. Returns for the last of some steps how many names were read in all, and the most looks of a rank.
struct Cost {
  uint64_t names = 0;
  uint64_t looks = 0;
};
Cost Simulate(uint32_t world) {
  constexpr uint64_t kSpreadUs = 1000000;
  constexpr uint64_t kCommitUs = 100000;
  Ranks ranks(world);
  std::vector<Pauses> pauses;
  for (uint32_t rank = 0; rank < world; ++rank) pauses.emplace_back(rank);
  Cost cost;
  uint64_t now_us = 0;
  for (int64_t step = 1; step <= 3; ++step) {
    cost = Cost();
    ranks.Write(step);
    std::vector<uint64_t> looks(world);
    for (const auto& env : ranks.envs) env->names_read = 0;
    const uint64_t begun_us = now_us;
    using Event = std::pair<uint64_t, uint32_t>;  // when, and whose
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
    for (uint32_t rank = 0; rank < world; ++rank) {
      events.emplace(begun_us + kSpreadUs * (uint64_t{7919} * rank % world) / world, rank);
    }
    std::vector<bool> sealed(world);
    uint64_t committed_us = 0;
    while (!events.empty()) {
      const auto [at_us, rank] = events.top();
      events.pop();
      now_us = at_us;
      if (!sealed[rank]) {
        sealed[rank] = true;
        ranks.Seal(rank, step);
        pauses[rank].Begin(now_us);
        events.emplace(rank == 0 ? now_us : now_us + pauses[rank].Next(now_us), rank);
        continue;
      }
      ++looks[rank];
      if (committed_us == 0 && rank == 0) {
        PartialState roll;
        std::string failure;
        CHECK_OK(ranks.meetings[0]->Roll(step, &roll, &failure));
        if (roll.present.size() == world) {
          pauses[0].Ended(now_us);
          committed_us = now_us + kCommitUs;
          events.emplace(committed_us, 0);
        } else {
          events.emplace(now_us + pauses[0].Next(now_us), 0);
        }
        continue;
      }
      if (rank == 0) {
        ranks.CommitStep(step);
        continue;
      }
      std::string why;
      if (ranks.Look(rank, step, &why) == Verdict::kCommitted) {
        pauses[rank].Ended(now_us);
      } else {
        events.emplace(now_us + pauses[rank].Next(now_us), rank);
      }
    }
    // All know it soon, above all when the ranks know how long it takes.
    CHECK(now_us <= committed_us + (step <= 2 ? kSpreadUs / 2 : kSpreadUs / 4));
    for (uint32_t rank = 0; rank < world; ++rank) {
      cost.names += ranks.envs[rank]->names_read;
      cost.looks = std::max(cost.looks, looks[rank]);
      CHECK(rank == 0 || ranks.envs[rank]->lists == 0);
    }
  }
  return cost;
}

void TheNamesReadInAllGrowWithTheRanksAndTheLooksOfARankDoNot() {
  for (const uint32_t world : {2U, 8U, kMany / 16, kMany}) {
    const Cost cost = Simulate(world);
    std::printf("%u ranks: %llu names read, at most %llu looks of a rank\n", world,
                static_cast<unsigned long long>(cost.names), static_cast<unsigned long long>(cost.looks));
    CHECK(cost.names <= uint64_t{12} * (world + 2) && cost.looks <= 12);
  }
}

// The same with engines.
void EnginesOtherThanRankZerosListNothing() {
  constexpr uint32_t kWorld = 16;
  constexpr int64_t kSteps = 4;
  TemporaryDir run;
  const std::string data(kPage * kWorld, 'd');
  std::vector<std::unique_ptr<CountEnv>> envs;
  std::vector<std::unique_ptr<Engine>> engines;
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    envs.push_back(std::make_unique<CountEnv>(Env::Posix()));
    Options options;
    options.identity.rank = rank;
    options.identity.world = kWorld;
    options.identity.file_size = data.size();
    options.commit_timeout_ms = kLong;
    options.run_dir = run.path();
    engines.push_back(std::make_unique<Engine>(options, envs.back().get()));
  }
  for (int64_t step = 1; step <= kSteps; ++step) {
    const uint64_t begun_us = Env::Posix()->NowMicros();
    const uint64_t before = envs[0]->lists;
    for (uint32_t rank = 0; rank < kWorld; ++rank) {
      CHECK_OK(engines[rank]->Submit(step, {{data.data() + rank * kPage, kPage, rank * kPage}}, "", kLong));
      Env::Posix()->SleepMillis(2);  // they come one after the other
    }
    for (auto& engine : engines) CHECK_OK(engine->Wait(step, DF_EXTERNAL, kLong));
    for (auto& engine : engines) CHECK_OK(engine->Drain(kLong));
    // Pauses that grow by a quarter allow so many looks in the time; commit and clean-up list some directories besides.
    const double took_us = static_cast<double>(Env::Posix()->NowMicros() - begun_us);
    const double looks = std::log(took_us / Pauses::kShortestUs + 1) / std::log(1.25);
    CHECK(static_cast<double>(envs[0]->lists - before) <= looks + 10);
  }
  for (uint32_t rank = 1; rank < kWorld; ++rank) CHECK_EQ(envs[rank]->lists, 0U);
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  ARankSeesWhatRankZeroHasDecided();
  ARankThatGivesUpTellsRankZeroWhichTellsAll();
  WhatAFailedStepHasLeftStaysUntilAllKnow();
  OfManyFailedStepsTheNewestStay();
  OnlyWhatHasFailedIsRemovedToMakeRoom();
  AStepThatFailedUntoldIsNotTakenForACommittedOne();
  AStepThatWasCommittedReplacedAndRemovedIsCommitted();
  AnotherAttemptDecidesNothing();
  ALookCostsTheSameHoweverManyRanksAndStepsThereAre();
  TheNamesReadInAllGrowWithTheRanksAndTheLooksOfARankDoNot();
  EnginesOtherThanRankZerosListNothing();
}
