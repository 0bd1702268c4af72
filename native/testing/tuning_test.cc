// An engine's settings change while it runs: what begins later goes by the new ones, and nothing is lost.
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

constexpr uint64_t kWriters = 4;  // of an engine of EngineRanks

// Opened with four transfers: one at a time, in the order of the steps, as if it were opened with one; then several.
void ATunedEngineTransfersOneAtATimeAndSeveralAgain() {
  EngineRanks ranks({std::string(kSlowFirst) + ",delay=300:pwrite:step-0000000004.:1"}, 4, 4);
  CHECK_OK(ranks.rank(0)->Tune({kWriters, 1, 0}));
  for (int64_t step = 1; step <= 3; ++step) ranks.SubmitAll(step);
  ranks.AwaitCommit(2);
  CHECK(ranks.Exists(StepName(1)));
  ranks.AwaitCommit(3);
  CHECK_OK(ranks.rank(0)->Tune({kWriters, 4, 0}));
  for (int64_t step = 4; step <= 6; ++step) ranks.SubmitAll(step);
  ranks.AwaitCommit(5);
  CHECK(!ranks.Exists(StepName(4)));
  ranks.Drain();
  ranks.CheckRun({1, 2, 3, 4, 5, 6});
}

// A setting that the engine was not opened for leaves the others as they are too.
void WrongNumbersChangeNothing() {
  EngineRanks ranks({kSlowFirst}, 2, 3);
  Engine* const engine = ranks.rank(0);
  CHECK_OK(engine->Tune({2, 1, 2}));
  const Tuning wrong[] = {{0, 2, 3}, {kWriters + 1, 2, 3}, {4, 0, 3}, {4, 3, 3}, {4, 2, 4}};
  for (const Tuning& one : wrong) {
    const Status status = engine->Tune(one);
    CHECK(status.code() == Code::kInvalid);
    CHECK(status.message().find("tune: ") == 0 && status.message().find("; found ") != std::string::npos);
  }
  for (int64_t step = 1; step <= 2; ++step) ranks.SubmitAll(step);
  CHECK_EQ(engine->Room(), 0u);  // two may be uncommitted
  ranks.AwaitCommit(2);
  CHECK(ranks.Exists(StepName(1)));  // one is transferred at a time
  CHECK_OK(engine->Tune({4, 2, 0}));
  ranks.Drain();
  CHECK_EQ(engine->Room(), 3u);  // as many as the engine was opened with
}

// The ranks hear of new settings one after the other. The second rank captures nothing before the step that is slow on
// the first one is over, and newer ones, which wait for the second rank, are at their commits by then.
void RanksWhoseSettingsDifferGoOn() {
  for (const uint64_t transfers : {uint64_t{3}, uint64_t{1}}) {
    EngineRanks ranks({kSlowFirst, ""}, 3, 5);
    CHECK_OK(ranks.rank(1)->Tune({kWriters, 3, 1}));
    std::thread second([&] {
      for (int64_t step = 1; step <= 5; ++step) ranks.Submit(1, step);
    });
    for (int64_t step = 1; step <= 5; ++step) ranks.Submit(0, step);
    CHECK_OK(ranks.rank(0)->Tune({kWriters, transfers, 1}));
    second.join();
    ranks.DrainFromTheLast();
    ranks.CheckRun({1, 2, 3, 4, 5});
  }
}

// Ranks that are set anew before each step, each by itself, while their calls take any time: every step is committed.
void AnyTuningAtAnyTimeLosesNothing() {
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  constexpr const char* kOps[] = {"pwrite", "fdatasync", "mkdir", "rename", "fsync_dir", "open"};
  constexpr int64_t kSteps = 12;
  for (int training = 0; training < 12; ++training) {
    const size_t world = 1 + random() % 3;
    const auto transfers = static_cast<uint32_t>(1 + random() % 4);
    const auto uncommitted = static_cast<uint32_t>(1 + random() % 5);
    std::vector<std::string> plans(world);
    for (std::string& plan : plans) {
      for (int n = 0; n < 6; ++n) {
        plan += (plan.empty() ? "" : ",") + ("delay=" + std::to_string(1 + random() % 20) + ":" + kOps[random() % 6]) +
                ":step-000000000" + std::to_string(1 + random() % 9) + ".:1+";
      }
    }
    std::vector<TemporaryDir> directories(world);
    std::vector<std::string> locals;
    for (const TemporaryDir& one : directories) locals.push_back(one.path());
    EngineRanks ranks(plans, transfers, uncommitted, random() % 2 == 0 ? locals : std::vector<std::string>());
    std::vector<std::thread> callers;
    for (size_t rank = 0; rank < world; ++rank) {
      callers.emplace_back([&ranks, rank, transfers, uncommitted, mine = std::mt19937(random())]() mutable {
        for (int64_t step = 1; step <= kSteps; ++step) {
          const uint64_t most = mine() % (uncommitted + 1);
          CHECK_OK(ranks.rank(rank)->Tune({1 + mine() % kWriters, 1 + mine() % transfers, most}));
          ranks.Submit(rank, step);
          if (mine() % 3 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(mine() % 10));
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    ranks.DrainFromTheLast();
    std::vector<int64_t> steps;
    for (int64_t step = 1; step <= kSteps; ++step) {
      for (size_t rank = 0; rank < world; ++rank) CHECK(ranks.End(rank, step) == Code::kOk);
      steps.push_back(step);
    }
    ranks.CheckRun(steps);
  }
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  ATunedEngineTransfersOneAtATimeAndSeveralAgain();
  WrongNumbersChangeNothing();
  RanksWhoseSettingsDifferGoOn();
  AnyTuningAtAnyTimeLosesNothing();
}
