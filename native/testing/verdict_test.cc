// Whether a step is committed is decided once, by rank 0, and found by looking: an error of a call does not say that
// the call did nothing. Whatever goes wrong, no two ranks say the opposite of each other.
#include <memory>
#include <string>
#include <vector>

#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "format/names.h"
#include "store/commit.h"
#include "store/posix_store.h"
#include "testing/check.h"
#include "testing/fault_env.h"
#include "testing/faults_of.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kShort = 300;    // how long a rank waits that nobody will answer
constexpr uint64_t kMiddle = 3000;  // that of a rank which is answered once, and not a second time
constexpr uint64_t kPage = 4096;
// The end of the names of this attempt's partial directories in "FROM to TO": only the commit renames one.
constexpr char kCommit[] = "rename:.partial-00000000000000000000000000000000 to ";

// Ranks of one attempt, each with faults of its own, in one run directory. `timeouts_ms` has each rank's patience;
// those that it does not have are patient.
class Ranks {
 public:
  Ranks(const std::string& run, const std::vector<std::string>& plans, const std::vector<uint64_t>& timeouts_ms = {},
        uint8_t attempt = 0)
      : run_(run), data_(kPage * plans.size(), 'd') {
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      envs_.push_back(std::make_unique<FaultEnv>(Env::Posix(), FaultsOf(plans[rank]), ""));
      Options options;
      options.identity.rank = static_cast<uint32_t>(rank);
      options.identity.world = static_cast<uint32_t>(plans.size());
      options.identity.file_size = data_.size();
      options.identity.attempt[0] = attempt;
      options.commit_timeout_ms = rank < timeouts_ms.size() ? timeouts_ms[rank] : kLong;
      options.run_dir = run;
      engines_.push_back(std::make_unique<Engine>(options, envs_.back().get()));
    }
  }

  void Submit(size_t rank, int64_t step) {
    CHECK_OK(engines_[rank]->Submit(step, {{data_.data() + rank * kPage, kPage, rank * kPage}}, "", kLong));
  }

  void Fail(size_t rank, int64_t step, const std::string& why) { CHECK_OK(engines_[rank]->Fail(step, why)); }

  // Returns when rank 0 has removed what it was told to remove, or holds it back.
  void Remove(int64_t step) {
    CHECK_OK(engines_[0]->Remove({step}));
    CHECK_OK(engines_[0]->Drain(kLong));
  }

  // What a rank says of the step.
  Status End(size_t rank, int64_t step) {
    const Status end = engines_[rank]->Wait(step, DF_EXTERNAL, kLong);
    CHECK_OK(engines_[rank]->Drain(kLong));
    return end;
  }

  std::vector<Status> Ends(int64_t step) {
    std::vector<Status> ends;
    for (size_t rank = 0; rank < engines_.size(); ++rank) ends.push_back(End(rank, step));
    return ends;
  }

  void AllCommit(int64_t step) {
    for (size_t rank = 0; rank < engines_.size(); ++rank) Submit(rank, step);
    for (const Status& end : Ends(step)) CHECK_OK(end);
    CHECK(Exists(StepName(step)));
  }

  std::vector<std::string> Notices(size_t rank) {
    std::vector<std::string> notices;
    for (const Report& report : engines_[rank]->Poll(99)) {
      if (report.step < 0) notices.push_back(report.message);
    }
    return notices;
  }

  bool Exists(const std::string& name) const {
    FileInfo info;
    CHECK_OK(Env::Posix()->Stat(Join(run_, name), &info));
    return info.exists;
  }

 private:
  const std::string run_;
  const std::string data_;
  std::vector<std::unique_ptr<FaultEnv>> envs_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

void ARenameThatHappenedIsFoundThoughItAnswersWithAnError() {
  for (const std::string error : {"after=ENOENT:", "after=EIO:"}) {
    for (const std::string& call : {std::string(kCommit), std::string("rename:manifest.json.tmp")}) {
      TemporaryDir run;
      Ranks ranks(run.path(), {error + call + ":1", ""});
      ranks.AllCommit(1);
      ranks.AllCommit(2);
      CHECK(ranks.Notices(0).empty());
    }
  }
}

void ARenameThatDidNotHappenFailsTheStepOnAllRanks() {
  TemporaryDir run;
  Ranks ranks(run.path(), {std::string("fail=EROFS:") + kCommit + ":1", ""});
  for (const size_t rank : {0, 1}) ranks.Submit(rank, 1);
  for (const Status& end : ranks.Ends(1)) CHECK(end.message().find("rename ") != std::string::npos);
  CHECK(!ranks.Exists(StepName(1)));
}

void AnOlderCheckpointThatWasMovedAwayDoesNotFailTheCommit() {
  TemporaryDir run;
  Ranks(run.path(), {""}).AllCommit(1);
  Ranks later(run.path(), {"after=ENOENT:rename:.trash-:1"}, {}, 1);
  later.AllCommit(1);
}

// A loss of power may take the newer checkpoint's name, so the older checkpoint stays until a later sync has succeeded.
void ACommitWhoseNameIsNotKnownToBeDurableCountsAndNothingIsDeletedForIt() {
  TemporaryDir run;
  // Of the directories that rank 0 syncs for a step the run's is the third.
  Ranks ranks(run.path(), {"fail=EIO:fsync_dir::6", ""});
  ranks.AllCommit(1);
  CHECK(ranks.Notices(0).empty());
  ranks.AllCommit(2);
  const std::vector<std::string> notices = ranks.Notices(0);
  CHECK_EQ(notices.size(), 1U);
  CHECK(notices.front().find(StepName(2)) != std::string::npos &&
        notices.front().find("not known to be durable") != std::string::npos);
  ranks.Remove(1);
  CHECK(ranks.Exists(StepName(1)));
  ranks.AllCommit(3);
  ranks.Remove(2);
  CHECK(!ranks.Exists(StepName(1)) && !ranks.Exists(StepName(2)));
}

void ARankWithoutACaptureFailsTheStepOnAllRanksAtOnce() {
  for (const size_t who : {0, 2}) {
    TemporaryDir run;
    Ranks ranks(run.path(), {"", "", ""});
    for (const size_t rank : {0, 1, 2}) {
      if (rank != who) ranks.Submit(rank, 1);
    }
    ranks.Fail(who, 1, "its reader is closed");
    const std::vector<Status> ends = ranks.Ends(1);
    for (size_t rank = 0; rank < ends.size(); ++rank) {
      CHECK_EQ(ends[rank].code(), Code::kIncomplete);
      const std::string other = Join(run.path(), StepName(1)) + ": rank " + std::to_string(who) + " failed: ";
      CHECK_EQ(ends[rank].message(), (rank == who ? "" : other) + "its reader is closed");
    }
    ranks.AllCommit(2);
    CHECK(!ranks.Exists(PartialName(1, Id{})) && !ranks.Exists(StepName(1)));
  }
}

// Rank 0 may commit the step as soon as the record has its name. So a rank that does not know whether its record has it
// writes no marker of a failure.
void ARankWhoseRecordIsThereOrMayBeWaitsForTheVerdict() {
  const std::string record = "rename:rank-00001.record:1";
  const std::string blind = ",fail=EIO:stat:rank-00001.record.tmp:1";
  for (const std::string& plan :
       {std::string("fail=EIO:fsync_dir:.partial:1"), std::string("fail=ESTALE:fsync_dir:.partial:1"),
        std::string("no-memory:fsync_dir:.partial:1"), "after=ENOENT:" + record, "after=EIO:" + record + blind}) {
    TemporaryDir run;
    Ranks ranks(run.path(), {"", plan, ""});
    ranks.AllCommit(1);
    ranks.AllCommit(2);
  }
  TemporaryDir run;
  Ranks ranks(run.path(), {"", "fail=EIO:" + record + blind}, {kShort, kShort});
  for (const size_t rank : {0, 1}) ranks.Submit(rank, 1);
  for (const Status& end : ranks.Ends(1)) {
    CHECK(end.message().find("rank 1's record is missing (1 of 2 present) after 300 ms") != std::string::npos);
  }
}

void ARankThatHearsNothingOfRankZeroSaysThatItDoesNotKnow() {
  TemporaryDir run;
  Ranks ranks(run.path(), {"", ""}, {kLong, kShort});
  ranks.Submit(1, 1);
  const Status end = ranks.End(1, 1);
  CHECK_EQ(end.code(), Code::kIncomplete);
  CHECK(end.message().find("rank 0's record is missing (1 of 2 present) after 300 ms") != std::string::npos);
  CHECK(end.message().find("It is unknown whether the step is committed") != std::string::npos);
  const std::string partial = PartialName(1, Id{});
  CHECK(ranks.Exists(Join(partial, RecordName(1))) && !ranks.Exists(Join(partial, FailedName(1))));
  // Rank 0 comes late, and decides.
  ranks.Submit(0, 1);
  CHECK_OK(ranks.End(0, 1));
}

void ALookThatFailsSaysNothing() {
  const std::string manifest = "open:" + StepName(1) + "/manifest.json:";
  for (const std::string& plan : {"fail=EIO:" + manifest + "1", "fail=ESTALE:" + manifest + "1",
                                  std::string("fail=EIO:list:.partial:1"), std::string("no-memory:list:.partial:1")}) {
    TemporaryDir run;
    Ranks ranks(run.path(), {"", plan});
    ranks.AllCommit(1);
  }
  TemporaryDir run;
  Ranks ranks(run.path(), {"", "fail=EIO:" + manifest + "1+"}, {kLong, kShort});
  for (const size_t rank : {0, 1}) ranks.Submit(rank, 1);
  CHECK_OK(ranks.End(0, 1));
  const Status blind = ranks.End(1, 1);
  CHECK(blind.message().find("Input/output error") != std::string::npos);
  CHECK(blind.message().find("It is unknown whether the step is committed") != std::string::npos);
}

void RankZeroLooksAgainWhereItCouldNotSeeWhatItsRenameDid() {
  // It looks once before it begins.
  const std::string blind = std::string(kCommit) + ":1,fail=EIO:open:" + StepName(1) + "/manifest.json:2";
  {
    TemporaryDir run;
    Ranks ranks(run.path(), {"after=EIO:" + blind, ""});
    ranks.AllCommit(1);
    CHECK_EQ(ranks.Notices(0).size(), 0U);  // the name was synced when it was seen
  }
  {
    TemporaryDir run;
    Ranks ranks(run.path(), {"fail=EIO:" + blind, ""});  // the store is away for both calls
    ranks.AllCommit(1);
  }
  {
    TemporaryDir run;
    Ranks ranks(run.path(), {"fail=EROFS:" + blind, ""});
    for (const size_t rank : {0, 1}) ranks.Submit(rank, 1);
    for (const Status& end : ranks.Ends(1)) CHECK(end.message().find("rename ") != std::string::npos);
  }
  TemporaryDir run;
  Ranks ranks(run.path(), {"after=EIO:" + blind + "+", ""}, {kMiddle, kLong});
  for (const size_t rank : {0, 1}) ranks.Submit(rank, 1);
  CHECK(ranks.End(0, 1).message().find("It is unknown whether the step is committed") != std::string::npos);
  CHECK_OK(ranks.End(1, 1));
}

// The attempt that RUN/step-1 is of.
Id AttemptOfStepOne(const std::string& run) {
  Manifest manifest;
  bool counts = false;
  CHECK_OK(ReadCommitted(Env::Posix(), run, 1, &manifest, &counts));
  CHECK(counts);
  return manifest.identity.attempt;
}

void ACheckpointThatCanNotBeReadNowIsNeitherReplacedNorDeleted() {
  TemporaryDir run;
  Ranks(run.path(), {""}).AllCommit(1);
  const Id first = AttemptOfStepOne(run.path());
  CommitRequest request;
  request.step = 1;
  request.attempt[0] = 1;
  {
    Ranks dead(run.path(), {"fail=EROFS:rename:manifest.json.tmp:1"}, {}, 1);
    dead.Submit(0, 1);
    CHECK(!dead.End(0, 1).ok());
  }
  for (const char* nth : {"1", "2"}) {
    FaultEnv env(Env::Posix(), FaultsOf("fail=EIO:open:" + StepName(1) + "/manifest.json:" + nth), "");
    CommitOutcome outcome;
    CHECK_EQ(PosixStore(&env, run.path()).Commit(request, &outcome).code(), Code::kIo);
    CHECK(AttemptOfStepOne(run.path()) == first);
  }
  FaultEnv env(Env::Posix(), FaultsOf("fail=EIO:open:" + StepName(1) + "/manifest.json:1"), "");
  CHECK_EQ(PosixStore(&env, run.path()).Remove(1, first).code(), Code::kIo);
  CHECK(AttemptOfStepOne(run.path()) == first);
}

// Until the new one's name is durable a loss of power must not find the old one gone.
void ACheckpointIsReplacedOnlyByOneWhosePartialDirectoryIsDurable() {
  TemporaryDir run;
  Ranks(run.path(), {""}).AllCommit(1);
  const Id first = AttemptOfStepOne(run.path());
  {
    Ranks dead(run.path(), {"fail=EROFS:rename:manifest.json.tmp:1"}, {}, 1);
    dead.Submit(0, 1);
    CHECK(!dead.End(0, 1).ok());
  }
  CommitRequest request;
  request.step = 1;
  request.attempt[0] = 1;
  request.replace = true;
  CommitOutcome outcome;
  // The first sync is that of the partial directory's own names, the second that of the run's.
  FaultEnv env(Env::Posix(), FaultsOf("fail=EIO:fsync_dir::2"), "");
  CHECK_EQ(PosixStore(&env, run.path()).Commit(request, &outcome).code(), Code::kIo);
  CHECK(AttemptOfStepOne(run.path()) == first);
  CHECK_OK(PosixStore(&env, run.path()).Commit(request, &outcome));
  CHECK(AttemptOfStepOne(run.path()) == request.attempt);
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::ARenameThatHappenedIsFoundThoughItAnswersWithAnError();
  deepfreeze::ARenameThatDidNotHappenFailsTheStepOnAllRanks();
  deepfreeze::AnOlderCheckpointThatWasMovedAwayDoesNotFailTheCommit();
  deepfreeze::ACommitWhoseNameIsNotKnownToBeDurableCountsAndNothingIsDeletedForIt();
  deepfreeze::ARankWithoutACaptureFailsTheStepOnAllRanksAtOnce();
  deepfreeze::ARankWhoseRecordIsThereOrMayBeWaitsForTheVerdict();
  deepfreeze::ARankThatHearsNothingOfRankZeroSaysThatItDoesNotKnow();
  deepfreeze::ALookThatFailsSaysNothing();
  deepfreeze::RankZeroLooksAgainWhereItCouldNotSeeWhatItsRenameDid();
  deepfreeze::ACheckpointThatCanNotBeReadNowIsNeitherReplacedNorDeleted();
  deepfreeze::ACheckpointIsReplacedOnlyByOneWhosePartialDirectoryIsDurable();
}
