// Ranks on a network file system, each a client of its own (testing/nfs_env.h).
#include <memory>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "base/crc32c.h"
#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "format/names.h"
#include "store/dir_meeting.h"
#include "store/partial.h"
#include "store/posix_store.h"
#include "testing/check.h"
#include "testing/fault_env.h"
#include "testing/faults_of.h"
#include "testing/nfs_env.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kPage = 4096;
// A bound on a commit that ends before a client forgets that a name was not there.
constexpr uint64_t kBeforeNamesExpire = NfsEnv::kRemembersSeconds * 1000 / 3;

std::string Model(const std::string& directory) {
  std::string bytes;
  CHECK_OK(ReadSmallFile(Env::Posix(), Join(directory, kModelName), uint64_t{1} << 20, &bytes));
  return bytes;
}

// An older version placed tensors in this way, and a start that finishes such a checkpoint still writes them so.
void TwoRanksThatWritePartsOfOnePageLoseNothing() {
  TemporaryDir run;
  Identity identity;
  identity.world = 2;
  identity.file_size = 2 * kPage;
  std::vector<std::unique_ptr<NfsEnv>> clients;
  std::vector<std::unique_ptr<PartialWriter>> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    clients.push_back(std::make_unique<NfsEnv>(Env::Posix(), run.path()));
    ranks.push_back(std::make_unique<PartialWriter>(clients[rank].get(), run.path(), identity));
    CHECK_OK(ranks[rank]->Begin(nullptr));
  }
  const uint64_t border = kPage + 1000;
  const std::string data = std::string(border, 'a') + std::string(2 * kPage - border, 'b');
  CHECK_OK(ranks[0]->Write(0, data.data(), border));
  CHECK_OK(ranks[1]->Write(border, data.data() + border, data.size() - border));
  for (auto& rank : ranks) CHECK_OK(rank->Seal());
  CHECK_EQ(Model(PartialPath(run.path(), 0, Id{})), data);
}

// Ranks of one attempt, each a client with faults of its own.
class Ranks {
 public:
  Ranks(const std::string& run, const std::vector<std::string>& plans, uint64_t timeout_ms = kLong, uint8_t attempt = 0)
      : run_(run), data_(kPage * plans.size(), static_cast<char>('a' + attempt)) {
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      clients_.push_back(std::make_unique<NfsEnv>(Env::Posix(), run));
      envs_.push_back(std::make_unique<FaultEnv>(clients_.back().get(), FaultsOf(plans[rank]), ""));
      Options options;
      options.identity.rank = static_cast<uint32_t>(rank);
      options.identity.world = static_cast<uint32_t>(plans.size());
      options.identity.file_size = data_.size();
      options.identity.attempt[0] = attempt;
      options.in_flight = 2;
      options.commit_timeout_ms = timeout_ms;
      options.run_dir = run;
      engines_.push_back(std::make_unique<Engine>(options, envs_.back().get()));
    }
  }

  NfsEnv* client(size_t rank) { return clients_[rank].get(); }

  void Submit(size_t rank, int64_t step) {
    CHECK_OK(engines_[rank]->Submit(step, {{data_.data() + rank * kPage, kPage, rank * kPage}}, "", kLong));
  }

  Status End(size_t rank, int64_t step, int level = DF_EXTERNAL) { return engines_[rank]->Wait(step, level, kLong); }

  void AllCommit(int64_t step) {
    for (size_t rank = 0; rank < engines_.size(); ++rank) Submit(rank, step);
    for (size_t rank = 0; rank < engines_.size(); ++rank) CHECK_OK(End(rank, step));
    for (auto& engine : engines_) CHECK_OK(engine->Drain(kLong));
    CHECK_EQ(Model(Join(run_, StepName(step))), data_);
  }

 private:
  const std::string run_;
  const std::string data_;
  std::vector<std::unique_ptr<NfsEnv>> clients_;
  std::vector<std::unique_ptr<FaultEnv>> envs_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

// The records are those of an older version's placement, or of a wrong one. A later start finishes such a step all the
// same, because it reads the file: lost bytes show in the checksums.
void AStepOfWhichTwoRanksWroteOnePageIsNotCommittedByTheEngineAndFinishedByALaterStart() {
  TemporaryDir run;
  const std::string data(3 * kPage, 'd');
  Options options;
  options.identity.world = 3;
  options.identity.file_size = data.size();
  options.commit_timeout_ms = kLong;
  options.run_dir = run.path();
  PosixStore store(Env::Posix(), run.path());
  for (const auto& [rank, begin, end] :
       {std::tuple{1U, kPage, kPage + 1000}, std::tuple{2U, kPage + 1000, 3 * kPage}}) {
    Identity identity = options.At(1);
    identity.rank = rank;
    const auto shard = store.OpenShard(identity);
    CHECK_OK(shard->Begin(nullptr));
    CHECK_OK(shard->Write(begin, data.data(), end - begin));
    CHECK_OK(shard->Seal());
    Seal seal = Seal::kUnseen;
    const Record record{identity, {{begin, end - begin, Crc32c(0, data.data(), end - begin)}}, "", ""};
    CHECK_OK(store.Meet(identity)->Sealed(record, &seal));
  }
  Engine engine(options, Env::Posix());
  CHECK_OK(engine.Submit(1, {{data.data(), kPage, 0}}, "", kLong));
  const Status refused = engine.Wait(1, DF_EXTERNAL, kLong);
  CHECK_EQ(refused.code(), Code::kInvalid);
  CHECK(refused.message().find("rank-00001.record: expected every page of 4096 bytes") != std::string::npos);
  CHECK(refused.message().find("found a piece that ends at byte 5096") != std::string::npos);
  CommitRequest request;
  request.step = 1;
  request.verify = true;
  CommitOutcome outcome;
  CHECK_OK(store.Commit(request, &outcome));
  CHECK_EQ(Model(Join(run.path(), StepName(1))), data);
}

void ARankThatLookedTooEarlyLearnsOfTheCommitAtItsNextLook() {
  TemporaryDir run;
  Ranks ranks(run.path(), {"", ""}, kBeforeNamesExpire);
  ranks.Submit(1, 1);
  while (!ranks.client(1)->RemembersNone(Join(run.path(), StepName(1)))) std::this_thread::yield();
  ranks.Submit(0, 1);
  CHECK_OK(ranks.End(0, 1));
  CHECK_OK(ranks.End(1, 1));
}

void ARankThatLookedTooEarlyLearnsOfTheFailureAtItsNextLook() {
  TemporaryDir run;
  Ranks ranks(run.path(), {"fail=EROFS:rename:manifest.json.tmp:1", ""}, kBeforeNamesExpire);
  ranks.Submit(1, 1);
  while (!ranks.client(1)->RemembersNone(Join(run.path(), FailedStepName(1, Id{})))) std::this_thread::yield();
  ranks.Submit(0, 1);
  CHECK(!ranks.End(0, 1).ok());
  CHECK(ranks.End(1, 1).message().find("step-0000000001: rank 0 failed: rename ") != std::string::npos);
}

void RenamesWhoseRepliesAreLostCostNothing() {
  TemporaryDir run;
  for (const uint8_t attempt : {0, 1}) {
    Ranks ranks(run.path(), {"", ""}, kLong, attempt);
    for (const size_t rank : {0, 1}) ranks.client(rank)->LoseReplies(true);
    for (int64_t step = 1; step <= 3; ++step) ranks.AllCommit(step);
  }
}

// Rank 0 commits both steps, and removes the first, before rank 1 syncs the directory that had its record.
void ADirectoryThatWasRenamedAndRemovedMeanwhileFailsNoStep() {
  TemporaryDir run;
  Ranks ranks(run.path(), {"", "delay=300:fsync_dir:" + StepName(1) + ".partial:1"});
  ranks.Submit(1, 1);
  ranks.Submit(0, 1);
  CHECK_OK(ranks.End(0, 1));
  CHECK_OK(RemoveTree(ranks.client(0), Join(run.path(), StepName(1))));
  for (const size_t rank : {0, 1}) ranks.Submit(rank, 2);
  for (const size_t rank : {0, 1}) CHECK_OK(ranks.End(rank, 2));
  CHECK_OK(ranks.End(1, 1));
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::TwoRanksThatWritePartsOfOnePageLoseNothing();
  deepfreeze::AStepOfWhichTwoRanksWroteOnePageIsNotCommittedByTheEngineAndFinishedByALaterStart();
  deepfreeze::ADirectoryThatWasRenamedAndRemovedMeanwhileFailsNoStep();
  deepfreeze::ARankThatLookedTooEarlyLearnsOfTheCommitAtItsNextLook();
  deepfreeze::ARankThatLookedTooEarlyLearnsOfTheFailureAtItsNextLook();
  deepfreeze::RenamesWhoseRepliesAreLostCostNothing();
}
