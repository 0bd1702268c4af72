// Ranks of one attempt with their engines, whose calls of the system may take long or fail. For tests only.
#ifndef DEEPFREEZE_TESTING_ENGINE_RANKS_H_
#define DEEPFREEZE_TESTING_ENGINE_RANKS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "format/names.h"
#include "store/commit.h"
#include "testing/check.h"
#include "testing/fault_env.h"
#include "testing/faults_of.h"

namespace deepfreeze {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kPages = 4;  // of each rank

// A plan of faults: the one write of the first step takes long.
constexpr char kSlowFirst[] = "delay=300:pwrite:step-0000000001.:1";

// The bytes of a rank's part of a step.
inline std::string BytesOf(size_t rank, int64_t step) {
  std::string bytes(kPages * kPage, static_cast<char>('a' + step % 26));
  bytes[0] = static_cast<char>('0' + rank);
  return bytes;
}

// The ranks of one attempt, each with faults of its own.
class EngineRanks {
 public:
  // locals: a directory of each rank for its slots; none: there is no local tier.
  EngineRanks(const std::vector<std::string>& plans, uint32_t transfers, uint32_t uncommitted,
              const std::vector<std::string>& locals = {}) {
    for (size_t rank = 0; rank < plans.size(); ++rank) {
      envs_.push_back(std::make_unique<FaultEnv>(Env::Posix(), FaultsOf(plans[rank]), ""));
      Options options;
      options.identity.rank = static_cast<uint32_t>(rank);
      options.identity.world = static_cast<uint32_t>(plans.size());
      options.identity.file_size = kPages * kPage * plans.size();
      options.chunk_bytes = kPage;
      options.commit_timeout_ms = kLong;
      options.in_flight = uncommitted + 1;  // so that memory is not what holds a capture back
      options.slots = uncommitted;
      options.writers = 4;
      options.uncommitted = uncommitted;
      options.transfers = transfers;
      options.run_dir = run_.path();
      if (!locals.empty()) options.local_dir = locals[rank];
      engines_.push_back(std::make_unique<Engine>(options, envs_.back().get()));
    }
  }
  ~EngineRanks() {
    // As a job ends: rank 0 last, for the others may still ask for its verdict.
    while (!engines_.empty()) engines_.pop_back();
  }

  Engine* rank(size_t number) { return engines_[number].get(); }

  // May be called for several ranks at once.
  void Submit(size_t rank, int64_t step) {
    std::string& bytes = DataOf(rank, step);
    bytes = BytesOf(rank, step);
    const uint64_t at = rank * kPages * kPage;
    CHECK_OK(engines_[rank]->Submit(step, {{bytes.data(), bytes.size(), at}}, "", kLong));
  }
  void SubmitAll(int64_t step) {
    for (size_t rank = 0; rank < engines_.size(); ++rank) Submit(rank, step);
  }

  Code End(size_t rank, int64_t step) { return engines_[rank]->Wait(step, DF_EXTERNAL, kLong).code(); }
  void Drain() {
    for (const auto& engine : engines_) CHECK_OK(engine->Drain(kLong));
  }

  // Rank 0, which waits until the others know what is over, comes last.
  void DrainFromTheLast() {
    for (auto engine = engines_.rbegin(); engine != engines_.rend(); ++engine) CHECK_OK((*engine)->Drain(kLong));
  }

  // Waits until rank 0 has committed the step.
  void AwaitCommit(int64_t step) { CHECK(End(0, step) == Code::kOk); }

  bool Exists(const std::string& name) const {
    FileInfo info;
    CHECK_OK(Env::Posix()->Stat(Join(run_.path(), name), &info));
    return info.exists;
  }
  // Nothing but committed checkpoints of these steps, with the right bytes.
  void CheckRun(const std::vector<int64_t>& steps) const {
    std::vector<std::string> names;
    bool exists = false;
    CHECK_OK(Env::Posix()->List(run_.path(), &names, &exists));
    size_t found = 0;
    for (const std::string& name : names) {
      const RunEntry entry = ParseRunEntry(name);
      CHECK(entry.kind == EntryKind::kStep || entry.kind == EntryKind::kOther);
      found += entry.kind == EntryKind::kStep ? 1 : 0;
    }
    CHECK_EQ(found, steps.size());
    for (const int64_t step : steps) CheckBytes(step);
  }
  void CheckBytes(int64_t step) const {
    bool committed = false;
    CHECK_OK(IsCommitted(Env::Posix(), run_.path(), step, Id{}, &committed));
    CHECK(committed);
    std::string bytes;
    const std::string path = Join(Join(run_.path(), StepName(step)), kModelName);
    CHECK_OK(ReadSmallFile(Env::Posix(), path, uint64_t{1} << 30, &bytes));
    std::string expected;
    for (size_t rank = 0; rank < engines_.size(); ++rank) expected += BytesOf(rank, step);
    CHECK(bytes == expected);
  }

  // How the steps ended of which the rank has reported it since the last call.
  std::map<int64_t, Report> Ends(size_t rank) {
    std::map<int64_t, Report> ends;
    for (const Report& report : engines_[rank]->Poll(999)) {
      if (report.step >= 0 && (report.code != Code::kOk || report.level == DF_EXTERNAL)) ends[report.step] = report;
    }
    return ends;
  }

 private:
  std::string& DataOf(size_t rank, int64_t step) {
    const MutexLock lock(&mutex_);
    return data_[{rank, step}];
  }

  TemporaryDir run_;
  std::vector<std::unique_ptr<FaultEnv>> envs_;
  Mutex mutex_;
  std::map<std::pair<size_t, int64_t>, std::string> data_ GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Engine>> engines_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_TESTING_ENGINE_RANKS_H_
