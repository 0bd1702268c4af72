// A run whose bytes rank 0's caller bounds: rank 0 begins each step there, and what failed steps have left goes early.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "format/names.h"
#include "testing/check.h"
#include "testing/fault_env.h"
#include "testing/faults_of.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kSize = 300 * 4096 + 17;
constexpr uint64_t kHalf = uint64_t{150} * 4096;

Options ForRank(uint32_t rank, const std::string& run_dir) {
  Options options;
  options.identity.rank = rank;
  options.identity.world = 2;
  options.identity.file_size = kSize;
  options.in_flight = 2;
  options.writers = 2;
  options.chunk_bytes = uint64_t{16} * 4096;
  options.commit_timeout_ms = kLong;
  options.bounded = true;
  options.run_dir = run_dir;
  return options;
}

// A rank's half of the file.
std::vector<Region> Share(const std::string& data, uint32_t rank) {
  if (rank == 0) return {{data.data(), kHalf, 0}};
  return {{data.data() + kHalf, kSize - kHalf, kHalf}};
}

// How many names of directories of a step a run has.
size_t StepsIn(const std::string& run_dir) {
  std::vector<std::string> names;
  bool exists = false;
  CHECK_OK(Env::Posix()->List(run_dir, &names, &exists));
  return static_cast<size_t>(std::count_if(names.begin(), names.end(), [](const std::string& name) {
    const EntryKind kind = ParseRunEntry(name).kind;
    return kind == EntryKind::kStep || kind == EntryKind::kPartial || kind == EntryKind::kTrash;
  }));
}

// In a run whose bytes are bounded rank 0 alone decides when another step may lie there.
void InABoundedRunRank0BeginsEachStep() {
  TemporaryDir run;
  const std::string data(kSize, 'b');
  std::vector<std::unique_ptr<Engine>> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<Engine>(ForRank(rank, run.path()), Env::Posix()));
  }
  CHECK_OK(ranks[1]->Submit(1, Share(data, 1), "", kLong));
  const Status waiting = ranks[1]->Wait(1, DF_EXTERNAL, 100);
  CHECK_EQ(waiting.code(), Code::kTimeout);
  CHECK(waiting.message().find("waits for rank 0, which waits for room in the run") != std::string::npos);
  CHECK_EQ(StepsIn(run.path()), 0U);
  CHECK_OK(ranks[0]->Submit(1, Share(data, 0), "", kLong));
  for (auto& rank : ranks) CHECK_OK(rank->Wait(1, DF_EXTERNAL, kLong));

  // A step that fails is over on both, and what it has left goes when that is asked for.
  CHECK_OK(ranks[1]->Submit(2, Share(data, 1), "", kLong));
  CHECK_OK(ranks[0]->Fail(2, "no capture"));
  for (auto& rank : ranks) CHECK_EQ(rank->Wait(2, DF_EXTERNAL, kLong).code() == Code::kOk, false);
  CHECK_OK(ranks[1]->Submit(3, Share(data, 1), "", kLong));
  CHECK_OK(ranks[0]->Submit(3, {{data.data(), 4096, 0}}, "", kLong));  // a gap in the file
  for (auto& rank : ranks) CHECK_EQ(rank->Wait(3, DF_EXTERNAL, kLong).code() == Code::kOk, false);
  for (auto& rank : ranks) CHECK_OK(rank->Drain(kLong));
  CHECK(StepsIn(run.path()) > 1);
  CHECK_OK(ranks[0]->Remove({}));
  CHECK_OK(ranks[0]->Drain(kLong));
  CHECK_EQ(StepsIn(run.path()), 1U);
}

// It fails the step after the time that a checkpoint may wait for another rank.
void InABoundedRunARankWaitsForRank0NoLongerThanForAnother() {
  TemporaryDir run;
  const std::string data(kSize, 'b');
  Options options = ForRank(1, run.path());
  options.commit_timeout_ms = 200;
  Engine engine(options, Env::Posix());
  CHECK_OK(engine.Submit(1, Share(data, 1), "", kLong));
  const Status status = engine.Wait(1, DF_EXTERNAL, kLong);
  CHECK_EQ(status.code(), Code::kTimeout);
  CHECK(status.message().find("rank 0 has not begun the step in the run within 200 ms") != std::string::npos);
}

// An unlink that fails leaves a removed checkpoint in the trash. No commit comes that would clean up: it waits for
// room.
void WhatARemovalHasLeftGoesWhenThatIsAskedFor() {
  TemporaryDir run;
  const std::string data(kSize, 'b');
  FaultEnv env(Env::Posix(), FaultsOf("fail=EIO:unlink:.trash-step:1"), "");
  Options options = ForRank(0, run.path());
  options.identity.world = 1;
  Engine engine(options, &env);
  CHECK_OK(engine.Submit(1, {{data.data(), kSize, 0}}, "", kLong));
  CHECK_OK(engine.Wait(1, DF_EXTERNAL, kLong));
  CHECK_OK(engine.Drain(kLong));  // its own clean-up must not come after the removal
  CHECK_OK(engine.Remove({1}));
  CHECK_OK(engine.Drain(kLong));
  CHECK_EQ(StepsIn(run.path()), 1U);
  CHECK_OK(engine.Remove({}));
  CHECK_OK(engine.Drain(kLong));
  CHECK_EQ(StepsIn(run.path()), 0U);
}

// Whoever waits for room asks again and again, and must not take that for something that moves.
void ATryThatRemovesNothingIsNoMovement() {
  TemporaryDir run;
  const std::string data(kSize, 'b');
  Options options = ForRank(0, run.path());
  options.commit_timeout_ms = 50;
  Engine engine(options, Env::Posix());
  CHECK_OK(engine.Submit(1, Share(data, 0), "", kLong));
  CHECK_EQ(engine.Wait(1, DF_EXTERNAL, kLong).code(), Code::kIncomplete);  // rank 1 is not there, and does not answer
  CHECK_OK(engine.Drain(kLong));
  const uint64_t begin_us = Env::Posix()->NowMicros();
  while (Env::Posix()->NowMicros() < begin_us + 100000) {
    CHECK_OK(engine.Remove({}));
    CHECK_OK(engine.Drain(kLong));
  }
  CHECK_EQ(StepsIn(run.path()), 1U);
  CHECK(engine.IdleMs() >= 90);
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::WhatARemovalHasLeftGoesWhenThatIsAskedFor();
  deepfreeze::ATryThatRemovesNothingIsNoMovement();
  deepfreeze::InABoundedRunRank0BeginsEachStep();
  deepfreeze::InABoundedRunARankWaitsForRank0NoLongerThanForAnother();
}
