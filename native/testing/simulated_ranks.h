// Ranks that meet, without engines: each rank's side of the protocol, and what it costs in calls to the store. For
// tests only.
#ifndef DEEPFREEZE_TESTING_SIMULATED_RANKS_H_
#define DEEPFREEZE_TESTING_SIMULATED_RANKS_H_

#include <algorithm>
#include <memory>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "base/crc32c.h"
#include "engine/pauses.h"
#include "format/names.h"
#include "store/dir_meeting.h"
#include "store/node_meeting.h"
#include "store/partial.h"
#include "store/posix_store.h"
#include "testing/check.h"
#include "testing/count_env.h"

namespace deepfreeze {

constexpr uint64_t kRankPage = 4096;

// Ranks of one attempt, without engines, each with an Env of its own, which counts its calls to the run. A rank has one
// page of the file. on_node: so many ranks, one after the other, are on a node together.
struct Ranks {
  static constexpr uint64_t kPatienceUs = 60000000;
  TemporaryDir run{"/dev/shm"};
  TemporaryDir memory{"/dev/shm"};  // of all nodes
  const uint32_t on_node;
  const uint64_t patience_us;  // how long a record is in a node's memory alone
  const std::string page = std::string(kRankPage, 'd');
  const uint32_t crc = Crc32c(0, page.data(), kRankPage);
  std::vector<std::unique_ptr<CountEnv>> envs;
  std::vector<std::unique_ptr<Meeting>> meetings;

  explicit Ranks(uint32_t world, uint32_t ranks_on_node = 1, uint64_t patience = kPatienceUs)
      : on_node(ranks_on_node), patience_us(patience) {
    for (uint32_t rank = 0; rank < world; ++rank) {
      envs.push_back(std::make_unique<CountEnv>(Env::Posix(), run.path()));
      meetings.push_back(Meet(rank, world));
    }
  }

  std::unique_ptr<Meeting> Meet(uint32_t rank, uint32_t world) {
    const std::vector<uint32_t> node = OnNode(rank, world, on_node);
    Env* env = envs[rank].get();
    const Identity identity = At(1, rank, world);
    auto all = std::make_unique<DirMeeting>(env, run.path(), identity);
    if (node.size() == 1) return all;
    return std::make_unique<NodeMeeting>(std::move(all), env, identity, memory.path(), node, patience_us);
  }

  static std::vector<uint32_t> OnNode(uint32_t rank, uint32_t world, uint32_t on_node) {
    std::vector<uint32_t> node;
    const uint32_t lowest = rank - rank % on_node;
    for (uint32_t one = lowest; one < std::min(world, lowest + on_node); ++one) node.push_back(one);
    return node;
  }

  static Identity At(int64_t step, uint32_t rank, uint32_t world) {
    Identity identity;
    identity.step = step;
    identity.rank = rank;
    identity.world = world;
    identity.file_size = kRankPage * world;
    return identity;
  }
  uint32_t world() const { return static_cast<uint32_t>(meetings.size()); }

  // Each rank writes its part.
  void Write(int64_t step) {
    for (uint32_t rank = 0; rank < world(); ++rank) {
      PartialWriter writer(envs[rank].get(), run.path(), At(step, rank, world()));
      CHECK_OK(writer.Begin(nullptr));
      CHECK_OK(writer.Write(kRankPage * rank, page.data(), kRankPage));
      CHECK_OK(writer.Seal());
    }
  }

  Record RecordOf(uint32_t rank, int64_t step) const {
    return {At(step, rank, world()), {{kRankPage * rank, kRankPage, crc}}, "", ""};
  }

  // The rank's part, which is written, is durable.
  void Seal(uint32_t rank, int64_t step) {
    deepfreeze::Seal seal = deepfreeze::Seal::kUnseen;
    CHECK_OK(meetings[rank]->Sealed(RecordOf(rank, step), &seal));
    CHECK(seal != deepfreeze::Seal::kUnseen);
  }

  void SealAll(int64_t step) {
    Write(step);
    for (uint32_t rank = 0; rank < world(); ++rank) Seal(rank, step);
  }

  // What rank 0 does when all are there.
  void CommitStep(int64_t step) {
    CommitRequest request;
    request.step = step;
    CommitOutcome outcome;
    PosixStore store(envs[0].get(), run.path());
    CHECK_OK(store.Commit(request, &outcome));
    store.Tidy(step);
  }

  // unfinished: older steps that are on their way.
  void CleanUpAfter(int64_t step, const std::vector<int64_t>& unfinished = {}) {
    CHECK_OK(PosixStore(envs[0].get(), run.path()).CleanUp(CleanUpRequest{step, Id{}, world(), 2, unfinished}));
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

// What a checkpoint costs in calls about names, of files and directories of the run.
struct Cost {
  uint64_t names = 0;    // read in listings, by all ranks
  uint64_t looks = 0;    // most looks of a rank, at the store or at the node's page
  uint64_t visits = 0;   // most looks at the store by the ranks of a node together, without rank 0
  uint64_t calls = 0;    // most calls of a rank other than 0
  uint64_t first = 0;    // rank 0's calls
  uint64_t all = 0;      // the calls of all ranks
  uint64_t late_us = 0;  // from the commit until all ranks know of it
};

// The protocol alone, in a time of its own: `world` ranks, so many of them on a node, come within a second, in any
// order, and the commit takes a tenth of a second. Returns the cost of the last of some steps, when the ranks know how
// long a commit takes.
inline Cost Simulate(uint32_t world, uint32_t on_node) {
  constexpr uint64_t kSpreadUs = 1000000;
  constexpr uint64_t kCommitUs = 100000;
  Ranks ranks(world, on_node);
  std::vector<Pauses> pauses;
  for (uint32_t rank = 0; rank < world; ++rank) pauses.emplace_back(rank);
  Cost cost;
  uint64_t now_us = 0;
  for (int64_t step = 1; step <= 3; ++step) {
    cost = Cost();
    std::vector<uint64_t> looks(world);
    std::vector<uint64_t> calls;
    std::vector<uint64_t> visits;
    uint64_t names = 0;
    for (const auto& env : ranks.envs) {
      calls.push_back(env->calls());
      visits.push_back(env->refreshes);
      names += env->names_read;
    }
    ranks.Write(step);
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
        ranks.CleanUpAfter(step);
        continue;
      }
      std::string why;
      if (ranks.Look(rank, step, &why) == Verdict::kCommitted) {
        pauses[rank].Ended(now_us);
      } else {
        events.emplace(now_us + pauses[rank].Next(now_us), rank);
      }
    }
    cost.late_us = now_us - committed_us;
    std::vector<uint64_t> of_node((world + on_node - 1) / on_node);
    for (uint32_t rank = 0; rank < world; ++rank) {
      const CountEnv& env = *ranks.envs[rank];
      const uint64_t own = env.calls() - calls[rank];
      cost.names += env.names_read;
      cost.looks = std::max(cost.looks, looks[rank]);
      cost.all += own;
      (rank == 0 ? cost.first : cost.calls) = std::max(rank == 0 ? cost.first : cost.calls, own);
      if (rank > 0) of_node[rank / on_node] += env.refreshes - visits[rank];
    }
    cost.names -= names;
    cost.visits = *std::max_element(of_node.begin(), of_node.end());
  }
  return cost;
}

}  // namespace deepfreeze

#endif  // DEEPFREEZE_TESTING_SIMULATED_RANKS_H_
