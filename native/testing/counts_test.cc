// What a checkpoint costs a shared store, counted for many ranks: calls about names, and names read in listings.
// With arguments (ranks, ranks on a node, "engines" or "protocol") prints the counts of that job alone, for
// benchmarks/metadata.py.
#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "testing/simulated_ranks.h"

namespace deepfreeze {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint32_t kEngines = 8;
constexpr uint32_t kMany = 64;  // a sanitizer is slow, and has nothing more to find with more
#else
constexpr uint32_t kEngines = 64;
constexpr uint32_t kMany = 1024;
#endif
constexpr uint32_t kOnNode = 8;

constexpr uint64_t kLong = 60000;

// The same with engines, on this machine's clock: the last of some steps. *looks: the most that growing pauses allow in
// the time that the step took.
Cost RunEngines(uint32_t world, uint32_t on_node, uint64_t* looks) {
  TemporaryDir run{"/dev/shm"};
  TemporaryDir memory{"/dev/shm"};
  const std::string data(kRankPage * world, 'd');
  std::vector<std::unique_ptr<CountEnv>> envs;
  std::vector<std::unique_ptr<Engine>> engines;
  for (uint32_t rank = 0; rank < world; ++rank) {
    envs.push_back(std::make_unique<CountEnv>(Env::Posix(), run.path()));
    Options options;
    options.identity = Ranks::At(0, rank, world);
    options.commit_timeout_ms = kLong;
    options.run_dir = run.path();
    options.node = Ranks::OnNode(rank, world, on_node);
    options.node_dir = memory.path();
    engines.push_back(std::make_unique<Engine>(options, envs.back().get()));
  }
  Cost cost;
  for (int64_t step = 1; step <= 4; ++step) {
    cost = Cost();
    std::vector<uint64_t> calls;
    std::vector<uint64_t> names;
    for (const auto& env : envs) {
      calls.push_back(env->calls());
      names.push_back(env->names_read);
    }
    const uint64_t begun_us = Env::Posix()->NowMicros();
    for (uint32_t rank = 0; rank < world; ++rank) {
      CHECK_OK(engines[rank]->Submit(step, {{data.data() + rank * kRankPage, kRankPage, rank * kRankPage}}, "", kLong));
    }
    for (auto& engine : engines) CHECK_OK(engine->Wait(step, DF_EXTERNAL, kLong));
    for (auto& engine : engines) CHECK_OK(engine->Drain(kLong));
    const double took_us = static_cast<double>(Env::Posix()->NowMicros() - begun_us);
    *looks = static_cast<uint64_t>(std::log(took_us / Pauses::kShortestUs + 1) / std::log(1.25)) + 1;
    for (uint32_t rank = 0; rank < world; ++rank) {
      const uint64_t own = envs[rank]->calls() - calls[rank];
      cost.names += envs[rank]->names_read - names[rank];
      cost.all += own;
      (rank == 0 ? cost.first : cost.calls) = std::max(rank == 0 ? cost.first : cost.calls, own);
    }
  }
  for (uint32_t rank = 1; rank < world; ++rank) CHECK_EQ(envs[rank]->lists, 0U);
  return cost;
}

void Print(const char* kind, uint32_t world, uint32_t on_node, const Cost& cost) {
  const auto n = [](uint64_t v) { return static_cast<unsigned long long>(v); };
  std::printf(
      "{\"kind\": \"%s\", \"ranks\": %u, \"on_node\": %u, \"names\": %llu, \"looks\": %llu, \"visits\": %llu, "
      "\"calls\": %llu, \"first\": %llu, \"all\": %llu, \"late_ms\": %llu}\n",
      kind, world, on_node, n(cost.names), n(cost.looks), n(cost.visits), n(cost.calls), n(cost.first), n(cost.all),
      n(cost.late_us / 1000));
}

Cost Protocol(uint32_t world, uint32_t on_node) {
  const Cost cost = Simulate(world, on_node);
  Print("protocol", world, on_node, cost);
  return cost;
}

Cost Engines(uint32_t world, uint32_t on_node, uint64_t* looks) {
  const Cost cost = RunEngines(world, on_node, looks);
  Print("engines", world, on_node, cost);
  return cost;
}

void TheCallsOfARankDoNotGrowWithTheRanks() {
  for (const uint32_t on_node : {1U, kOnNode}) {
    for (const uint32_t world : {2U, 8U, kMany / 16, kMany}) {
      const Cost cost = Protocol(world, on_node);
      const uint32_t nodes = (world + on_node - 1) / on_node;
      CHECK(cost.looks <= 14 && cost.calls <= 50);
      CHECK(cost.first <= 60 + uint64_t{2} * nodes);
      CHECK(cost.names <= uint64_t{14} * (world + 2));
      CHECK(cost.late_us <= 250000);
    }
  }
}

// The ranks of a node look at the store together about as often as a rank by itself.
void TheLooksOfANodeDoNotGrowWithItsRanks() {
  for (const uint32_t on_node : {2U, kOnNode, 64U}) {
    const Cost cost = Protocol(64 * 4, on_node);
    CHECK(cost.visits <= 20);
  }
}

// A look is three calls; besides, rank 0 makes about 50, another rank about 15.
void EnginesMakeAsFewCalls() {
  for (const uint32_t world : {2U, 8U, kEngines}) {
    uint64_t looks = 0;
    const Cost cost = Engines(world, kOnNode, &looks);
    CHECK(cost.calls <= 3 * looks + 20);
    CHECK(cost.first <= looks + uint64_t{2} * (world / kOnNode) + 60);
    CHECK(cost.names <= (looks + 8) * (world + 4));
  }
}

}  // namespace
}  // namespace deepfreeze

int main(int argc, char** argv) {
  using namespace deepfreeze;
  if (argc == 4) {
    const auto world = static_cast<uint32_t>(std::max(1, std::atoi(argv[1])));
    const auto on_node = static_cast<uint32_t>(std::max(1, std::atoi(argv[2])));
    uint64_t looks = 0;
    argv[3] == std::string("engines") ? Engines(world, on_node, &looks) : Protocol(world, on_node);
    return 0;
  }
  TheCallsOfARankDoNotGrowWithTheRanks();
  TheLooksOfANodeDoNotGrowWithItsRanks();
  EnginesMakeAsFewCalls();
}
