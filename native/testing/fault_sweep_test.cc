// Every system call of a job fails once, in every way that calls fail. Whatever it is: every wait comes back, what
// counts as a checkpoint is right, and the next one after the fault succeeds.
#include <cstdio>

#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "format/names.h"
#include "store/commit.h"
#include "testing/check.h"
#include "testing/fault_env.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kSize = 20 * 4096 + 17;
constexpr int64_t kSteps = 4;

// A step's bytes.
std::string Bytes(int64_t step) { return std::string(kSize, static_cast<char>('a' + step)); }

struct Job {
  TemporaryDir run{"/dev/shm"};
  TemporaryDir local{"/dev/shm"};
  std::vector<std::string> data;
  std::vector<std::unique_ptr<FaultEnv>> envs;
  std::vector<std::unique_ptr<Engine>> engines;
  std::string failures;  // what all ranks were told

  // One rank's calls go wrong.
  Job(uint32_t world, uint32_t victim, const std::string& plan, uint64_t commit_timeout_ms) {
    for (int64_t step = 0; step <= kSteps + 1; ++step) data.push_back(Bytes(step));
    for (uint32_t rank = 0; rank < world; ++rank) {
      std::vector<Fault> faults;
      if (rank == victim) CHECK_OK(ParseFaults(plan, &faults));
      envs.push_back(std::make_unique<FaultEnv>(Env::Posix(), faults, ""));
      Options options;
      options.identity.rank = rank;
      options.identity.world = world;
      options.identity.file_size = kSize;
      options.in_flight = 2;
      options.slots = 2;
      options.writers = 2;
      options.keep = 2;
      options.chunk_bytes = uint64_t{4} * 4096;
      options.commit_timeout_ms = commit_timeout_ms;
      options.run_dir = run.path();
      options.local_dir = local.path();
      engines.push_back(std::make_unique<Engine>(options, envs.back().get()));
    }
  }

  void Submit(int64_t step) {
    const uint64_t world = engines.size();
    const std::string& bytes = data[static_cast<size_t>(step)];
    for (uint64_t rank = 0; rank < world; ++rank) {
      const uint64_t begin = kSize / world * rank;
      const uint64_t end = rank + 1 == world ? kSize : kSize / world * (rank + 1);
      CHECK_OK(engines[rank]->Submit(step, {{bytes.data() + begin, end - begin, begin}}, "p", kLong));
    }
  }

  // Whether it was committed, as all ranks say.
  bool Ended(int64_t step) {
    bool committed = true;
    for (auto& engine : engines) {
      const Status status = engine->Wait(step, DF_EXTERNAL, kLong);
      CHECK(status.code() != Code::kTimeout && status.code() != Code::kClosed);
      if (!status.ok()) failures += "  " + status.message() + "\n";
      committed = committed && status.ok();
    }
    return committed;
  }

  // Whether the step counts; if it does, its bytes are right.
  bool Counts(int64_t step) const {
    Manifest manifest;
    if (!ReadCommitted(Env::Posix(), run.path(), step, &manifest)) return false;
    std::string bytes;
    CHECK_OK(ReadSmallFile(Env::Posix(), Join(Join(run.path(), StepName(step)), kModelName), kSize, &bytes));
    CHECK(bytes == Bytes(step));
    return true;
  }
};

struct Outcome {
  bool reached = false;  // the job came to that call
  int failed = 0;        // steps
  std::string failures;
};

Outcome Run(uint32_t world, uint32_t victim, const std::string& action, uint64_t nth, const std::string& onwards) {
  Job job(world, victim, action + ":*::" + std::to_string(nth) + onwards, onwards.empty() ? kLong : 50);
  Outcome outcome;
  for (int64_t step = 1; step <= kSteps; ++step) {
    job.Submit(step);
    const bool committed = job.Ended(step);
    CHECK(!committed || job.Counts(step));
    outcome.failed += committed ? 0 : 1;
  }
  outcome.reached = job.envs[victim]->seen() >= nth;
  outcome.failures = job.failures;
  job.envs[victim]->Heal();
  int64_t healed = kSteps + 1;
  job.Submit(healed);
  while (!job.Ended(healed)) {
    // On a busy machine a whole job may take longer than the short bound that a broken one is given.
    CHECK(!onwards.empty() && job.failures.find(" after 50 ms") != std::string::npos && healed < kSteps + 20);
    job.Submit(++healed);
  }
  for (auto& engine : job.engines) CHECK_OK(engine->Drain(kLong));
  for (int64_t step = 1; step <= healed; ++step) (void)job.Counts(step);
  CHECK(job.Counts(healed));
  return outcome;
}

void EveryCallMayGoWrong(uint32_t world, uint32_t victim, const char* action, int most_failed) {
  int points = 0;
  int failures = 0;
  for (uint64_t nth = 1;; ++nth) {
    const Outcome outcome = Run(world, victim, action, nth, "");
    if (!outcome.reached) break;
    if (outcome.failed > most_failed) {
      std::fprintf(stderr, "%s at call %d of rank %u of %u: %d steps failed:\n%s", action, static_cast<int>(nth),
                   victim, world, outcome.failed, outcome.failures.c_str());
      std::exit(1);
    }
    ++points;
    failures += outcome.failed;
  }
  CHECK(points > 50);
  std::printf("%s, rank %u of %u: %d calls, %d failed a step\n", action, victim, world, points, failures);
}

void AStoreThatIsBrokenFromACallOnIsLeftBehind(const char* action) {
  for (uint64_t nth = 1; nth < 40; nth += 3) CHECK(Run(1, 0, action, nth, "+").failed > 0);
}

// What a failed sync was to make durable may be gone, though the next sync succeeds: nothing that relied on it counts.
void AFailedSyncIsTakenForLostData() {
  for (const char* plan : {"lose=EIO:fdatasync:model:", "lose=ENOSPC:fdatasync:model:", "lose=EIO:fsync:.record:",
                           "lose=ENOSPC:fsync:.record:", "lose=EIO:fsync:manifest:", "lose=ENOSPC:fsync:manifest:"}) {
    for (int nth = 1; nth <= 3; ++nth) {
      Job job(1, 0, plan + std::to_string(nth), kLong);
      int failed = 0;
      for (int64_t step = 1; step <= kSteps; ++step) {
        job.Submit(step);
        failed += job.Ended(step) ? 0 : 1;
        (void)job.Counts(step);
      }
      CHECK(job.envs[0]->seen() >= static_cast<uint64_t>(nth));
      CHECK(failed <= 1 && job.Counts(kSteps));
    }
  }
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  for (const char* action : {"fail=EIO", "fail=ENOSPC", "fail=EDQUOT", "fail=EINTR"}) {
    EveryCallMayGoWrong(1, 0, action, 1);
  }
  EveryCallMayGoWrong(1, 0, "short", 0);
  EveryCallMayGoWrong(1, 0, "delay=5", 0);
  EveryCallMayGoWrong(1, 0, "no-memory", 1);
  for (uint32_t victim = 0; victim < 3; ++victim) EveryCallMayGoWrong(3, victim, "fail=EIO", 1);
  for (const char* action : {"fail=EIO", "fail=ENOSPC", "fail=EROFS"})
    AStoreThatIsBrokenFromACallOnIsLeftBehind(action);
  AFailedSyncIsTakenForLostData();
}
