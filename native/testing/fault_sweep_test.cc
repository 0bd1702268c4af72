// Every system call of a job fails once, in every way in which it can fail. Each time every wait returns, whatever
// counts as a checkpoint has the right bytes, and a checkpoint after the fault succeeds.
#include <cstdio>
#include <cstring>

#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "format/names.h"
#include "store/commit.h"
#include "testing/check.h"
#include "testing/fault_env.h"
#include "testing/faults_of.h"
#include "testing/nfs_env.h"
#include "testing/points.h"
#include "testing/values.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kShort =
    50;  // milliseconds; the time-out of commits in a job where something stays broken, or is slow
constexpr char kShortText[] = " after 50 ms";
constexpr uint64_t kPatient = 200;  // milliseconds; the time-out for a rank that can't even write that it has failed
constexpr uint64_t kSize = 20 * 4096 + 17;
constexpr int64_t kSteps = 4;
constexpr int64_t kTries = 20;  // of the step after the fault is gone
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kStride = 5;  // a sanitizer is slow, and looks at the threads and the memory of each job alike
#else
constexpr uint64_t kStride = 1;
#endif
// The points of the sweep that are due; made when it is first asked for, because reading the environment may throw.
const Points& DuePoints() {
  static const Points points;
  return points;
}
// What a job does with files and the clock.
constexpr const char* kOperations[] = {"open",      "close",     "stat",    "list",   "mkdir",     "rename",
                                       "unlink",    "rmdir",     "pread",   "pwrite", "fallocate", "fsync",
                                       "fdatasync", "fsync_dir", "refresh", "clock",  "mmap"};

// A step's bytes.
std::string Bytes(int64_t step) { return std::string(kSize, static_cast<char>('a' + step)); }

struct Shape {
  uint32_t world = 1;
  uint32_t victim = 0;    // the rank whose calls go wrong
  bool captured = false;  // steps are captured into slots in memory, as a graph does it; else handed over
  uint64_t commit_timeout_ms = kLong;
  int64_t keep = 2;      // after a commit rank 0 is told to remove the step that is so many steps older
  bool network = false;  // the run is on a network file system that loses the first reply to each change of a name

  std::string Name() const {
    return "rank " + std::to_string(victim) + " of " + std::to_string(world) + (captured ? ", captured" : "") +
           (network ? ", network" : "");
  }
};

struct Job {
  const Shape shape;
  TemporaryDir run{"/dev/shm"};
  TemporaryDir local{"/dev/shm"};
  std::vector<std::string> data;
  std::vector<std::unique_ptr<NfsEnv>> clients;
  std::vector<std::unique_ptr<FaultEnv>> envs;
  std::vector<std::unique_ptr<Engine>> engines;
  std::vector<uint64_t> places;  // of each rank's share in its slots, if it is captured
  std::string failures;          // what all ranks were told

  Job(const Shape& of, const std::string& plan) : shape(of) {
    for (int64_t step = 0; step < kSteps + kTries; ++step) data.push_back(Bytes(step));
    for (uint32_t rank = 0; rank < shape.world; ++rank) {
      clients.push_back(std::make_unique<NfsEnv>(Env::Posix(), run.path()));
      clients.back()->LoseReplies(true);
      Env* base = shape.network ? static_cast<Env*>(clients.back().get()) : Env::Posix();
      envs.push_back(std::make_unique<FaultEnv>(base, FaultsOf(rank == shape.victim ? plan : ""), ""));
      Options options;
      options.identity.rank = rank;
      options.identity.world = shape.world;
      options.identity.file_size = kSize;
      options.in_flight = 2;
      options.slots = 2;
      options.writers = 2;
      options.chunk_bytes = uint64_t{4} * 4096;
      options.commit_timeout_ms = shape.commit_timeout_ms;
      options.cached = std::getenv("DEEPFREEZE_TEST_CACHED") != nullptr;
      options.run_dir = run.path();
      options.local_dir = local.path();
      engines.push_back(std::make_unique<Engine>(options, envs.back().get()));
      CapturePlan capture;
      if (shape.captured) CHECK_OK(engines.back()->Plan({Share(rank, nullptr)}, 1, 0, &capture));
      places.push_back(shape.captured ? capture.places[0] : 0);
    }
  }

  // A rank's, of a step whose bytes begin there.
  Region Share(uint64_t rank, const char* bytes) const {
    const uint64_t share = kSize / 4096 / shape.world * 4096;
    const uint64_t begin = share * rank;
    const uint64_t end = rank + 1 == shape.world ? kSize : begin + share;
    return {bytes == nullptr ? nullptr : bytes + begin, end - begin, begin};
  }

  void Submit(int64_t step) {
    for (uint64_t rank = 0; rank < shape.world; ++rank) {
      Region share = Share(rank, data[static_cast<size_t>(step)].data());
      if (shape.captured) {
        char* base = nullptr;
        CHECK_OK(engines[rank]->Reserve(kLong, &base));
        CHECK_OK(engines[rank]->AwaitParts(base, engines[rank]->CaptureSize(), kLong));
        std::memcpy(base + places[rank], share.data, share.size);
        share.data = base + places[rank];
      }
      CHECK_OK(engines[rank]->Submit(step, {share}, "p", kLong, {}, UnknownValues()));
    }
  }

  // Returns whether the step was committed. Checks that it is there if any rank says that it is committed, and that no
  // two ranks say the opposite of each other.
  bool Ended(int64_t step) {
    bool committed = true;
    for (auto& engine : engines) {
      const Status status = engine->Wait(step, DF_EXTERNAL, kLong);
      CHECK(status.code() != Code::kTimeout && status.code() != Code::kClosed);
      const bool unknown = status.message().find("It is unknown whether") != std::string::npos;
      CHECK(unknown || status.ok() == Counts(step));
      if (!status.ok()) failures += "  " + status.message() + "\n";
      committed = committed && status.ok();
    }
    if (committed && step > shape.keep) CHECK_OK(engines[0]->Remove({step - shape.keep}));
    return committed;
  }

  // Whether the step counts; if it does, its bytes are right.
  bool Counts(int64_t step) const {
    bool committed = false;
    CHECK_OK(IsCommitted(Env::Posix(), run.path(), step, Id{}, &committed));
    if (!committed) return false;
    std::string bytes;
    CHECK_OK(ReadSmallFile(Env::Posix(), Join(Join(run.path(), StepName(step)), kModelName), kSize, &bytes));
    CHECK(bytes == Bytes(step));
    return true;
  }
};

// Counts the calls of each kind in a job without faults, and checks that each kind comes up: the sweep covers all of
// them.
void EveryKindOfCallIsSweptOver(const Shape& shape) {
  std::printf("operations of %s:", shape.Name().c_str());
  for (const char* operation : kOperations) {
    Job job(shape, std::string("delay=0:") + operation + "::1+");
    for (int64_t step = 1; step <= kSteps; ++step) {
      job.Submit(step);
      CHECK(job.Ended(step));
    }
    for (auto& engine : job.engines) CHECK_OK(engine->Drain(kLong));
    const int seen = static_cast<int>(job.envs[shape.victim]->seen());
    CHECK(seen > 0 || (!shape.captured && std::string(operation) == "mmap"));  // only captures need it
    std::printf(" %s %d", operation, seen);
  }
  std::printf("\n");
}

struct Outcome {
  bool reached = false;  // the job came to that call
  int failed = 0;        // steps
  std::string failures;
};

Outcome Run(const Shape& shape, const std::string& action, uint64_t nth, const std::string& onwards) {
  Job job(shape, action + ":*::" + std::to_string(nth) + onwards);
  FaultEnv& faulty = *job.envs[shape.victim];
  Outcome outcome;
  for (int64_t step = 1; step <= kSteps; ++step) {
    job.Submit(step);
    outcome.failed += job.Ended(step) ? 0 : 1;
  }
  outcome.reached = faulty.seen() >= nth;
  outcome.failures = job.failures;
  faulty.Heal();
  int64_t healed = kSteps + 1;
  job.Submit(healed);
  while (!job.Ended(healed)) {
    // On a busy machine a whole job may take longer than the short bound that a broken one is given.
    CHECK(shape.commit_timeout_ms == kShort && job.failures.find(kShortText) != std::string::npos);
    CHECK(++healed < kSteps + kTries);
    job.Submit(healed);
  }
  for (auto& engine : job.engines) CHECK_OK(engine->Drain(kLong));
  for (int64_t step = 1; step <= healed; ++step) (void)job.Counts(step);
  CHECK(job.Counts(healed));
  return outcome;
}

// Whether each step that failed did so of a sync or a close: other errors pass, and what they were of is done again.
bool OnlySyncsFailed(const std::string& failures) {
  for (size_t begin = 0; begin < failures.size();) {
    const size_t end = failures.find('\n', begin);
    const std::string line = failures.substr(begin, end - begin);
    const auto names = [&](const char* call) { return line.find(call) != std::string::npos; };
    if (!names("fsync") && !names("fdatasync ") && !names("close ")) return false;
    begin = end + 1;
  }
  return true;
}

void EveryCallMayGoWrong(const Shape& shape, const char* action, int most_failed, uint64_t stride = kStride) {
  const std::string name = shape.Name();
  int points = 0;
  int failures = 0;
  for (uint64_t nth = 1 + DuePoints().first * stride;; nth += DuePoints().every * stride) {
    const Outcome outcome = Run(shape, action, nth, "");
    if (!outcome.reached) break;
    // On the network a name's change has lost its reply besides: two things go wrong at a time.
    const bool passes = std::strcmp(action, "fail=EIO") == 0 && !shape.network;
    if (outcome.failed > most_failed || (passes && !OnlySyncsFailed(outcome.failures))) {
      std::fprintf(stderr, "%s at call %d of %s: %d steps failed:\n%s", action, static_cast<int>(nth), name.c_str(),
                   outcome.failed, outcome.failures.c_str());
      std::exit(1);
    }
    ++points;
    failures += outcome.failed;
  }
  CHECK(points >= static_cast<int>(DuePoints().AtLeast(50 / stride)));
  std::printf("%s, %s: %d calls, %d failed a step\n", action, name.c_str(), points, failures);
}

void AStoreThatIsBrokenFromACallOnIsLeftBehind(const char* action, bool network) {
  for (const bool captured : {false, true}) {
    const Shape shape{1, 0, captured, kShort, 2, network};
    int points = 0;
    for (uint64_t nth = 1 + 3 * DuePoints().first; nth < 40; nth += 3 * DuePoints().every) {
      CHECK(Run(shape, action, nth, "+").failed > 0);
      ++points;
    }
    std::printf("%s for good, %s: %d calls\n", action, shape.Name().c_str(), points);
  }
}

// A rank's call takes longer than the others wait: they give the step up, say so, and are there for the next one.
void EveryCallMayTakeLongerThanIsWaited(uint32_t victim, bool network) {
  const Shape shape{3, victim, false, kShort, 2, network};
  int points = 0;
  int failures = 0;
  for (uint64_t nth = 1 + 7 * DuePoints().first;; nth += 7 * DuePoints().every) {
    const Outcome outcome = Run(shape, "delay=150", nth, "");
    if (!outcome.reached) break;
    CHECK(outcome.failed == 0 || outcome.failures.find(kShortText) != std::string::npos);
    ++points;
    failures += outcome.failed;
  }
  CHECK(points >= static_cast<int>(DuePoints().AtLeast(10)) && (failures > 0 || !DuePoints().All()));
  std::printf("delay=150, bound 50, %s: %d calls, %d failed a step\n", shape.Name().c_str(), points, failures);
}

// The data of a failed sync may be lost although the next sync succeeds. So no step that relied on that data is
// committed.
void AFailedSyncIsTakenForLostData(const Shape& shape) {
  int points = 0;
  for (const char* error : {"lose=EIO", "lose=ENOSPC"}) {
    for (const char* call : {"fdatasync:model", "fsync:.record", "fsync:manifest"}) {
      for (uint64_t nth = 1;; ++nth) {
        Job job(shape, std::string(error) + ":" + call + ":" + std::to_string(nth));
        int failed = 0;
        for (int64_t step = 1; step <= kSteps; ++step) {
          job.Submit(step);
          failed += job.Ended(step) ? 0 : 1;
        }
        if (job.envs[shape.victim]->seen() < nth) break;
        CHECK(failed <= 1);
        ++points;
      }
    }
  }
  CHECK(points >= int64_t{4} * kSteps);
  std::printf("lose, %s: %d calls\n", shape.Name().c_str(), points);
}

// From some write on the directory of a step is full, perhaps too full for the marker of a failure, while the next
// steps are on their way. No rank takes the step for one that was committed.
void AFailureThatNobodyCanBeToldOfIsNoCommit(uint32_t victim, bool network) {
  const Shape shape{3, victim, false, kPatient, kSteps, network};
  int points = 0;
  int failures = 0;
  for (const char* names : {"", ",fail=ENOSPC:open:.failed:1+"}) {
    for (uint64_t nth = 1;; ++nth) {
      Job job(shape, "fail=ENOSPC:pwrite:" + StepName(2) + ".partial:" + std::to_string(nth) + "+" + names);
      for (int64_t step = 1; step <= kSteps; ++step) job.Submit(step);
      for (int64_t step = 1; step <= kSteps; ++step) failures += job.Ended(step) ? 0 : 1;
      if (job.envs[victim]->seen() < nth) break;
      ++points;
    }
  }
  CHECK(points >= 4 && failures >= points);
  std::printf("fail=ENOSPC for good, %s: %d calls, %d failed a step\n", shape.Name().c_str(), points, failures);
}

// stride: of EveryCallMayGoWrong.
void SweepsOfOneRank(bool network, uint64_t stride) {
  const Shape alone{1, 0, false, kLong, 2, network};
  const Shape captured{1, 0, true, kLong, 2, network};
  for (const char* action : {"fail=EIO", "fail=ENOSPC", "fail=EDQUOT", "fail=EINTR"}) {
    EveryCallMayGoWrong(alone, action, 1, stride);
  }
  for (const char* action : {"short", "delay=5"}) EveryCallMayGoWrong(alone, action, 0, stride);
  for (const char* action : {"fail=EIO", "fail=ENOSPC"}) EveryCallMayGoWrong(captured, action, 1, stride);
  EveryCallMayGoWrong(captured, "short", 0, stride);
  for (const char* action : {"fail=EIO", "fail=ENOSPC", "fail=EROFS"}) {
    AStoreThatIsBrokenFromACallOnIsLeftBehind(action, network);
  }
  AFailedSyncIsTakenForLostData(alone);
}

// Rank 0 commits; the others are alike.
void SweepsOfRanks(uint32_t victim, bool network, uint64_t stride) {
  const Shape shape{3, victim, false, kLong, 2, network};
  EveryCallMayGoWrong(shape, "fail=ENOSPC", 1, stride);
  EveryCallMayGoWrong(shape, "short", 0, stride);
  AFailedSyncIsTakenForLostData(shape);
  EveryCallMayTakeLongerThanIsWaited(victim, network);
  AFailureThatNobodyCanBeToldOfIsNoCommit(victim, network);
  // Calls that do what was asked and say that they did not.
  EveryCallMayGoWrong(shape, "after=EIO", 1, 2 * stride);
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // where it was, if it is ended from outside
  const Shape alone{1, 0, false, kLong};
  const Shape captured{1, 0, true, kLong};
  for (const Shape& shape : {alone, captured, Shape{3, 0, false, kLong}}) EveryKindOfCallIsSweptOver(shape);
  SweepsOfOneRank(false, kStride);
  EveryCallMayGoWrong(alone, "no-memory", 1);
  for (uint32_t victim = 0; victim < 3; ++victim) EveryCallMayGoWrong({3, victim, false, kLong}, "fail=EIO", 1);
  for (uint32_t victim = 0; victim < 2; ++victim) {
    SweepsOfRanks(victim, false, kStride);
    EveryCallMayGoWrong({3, victim, false, kLong}, "delay=5", 0);
  }
  EveryCallMayGoWrong({3, 1, true, kLong}, "fail=EIO", 1);
  // The same with ranks that are clients of a network file system, all of it where all points are due. Only memory that
  // runs out has nothing to do with files.
  const uint64_t stride = 4 * kStride;
  for (uint32_t victim = 0; victim < 2; ++victim) {
    const Shape client{3, victim, false, kLong, 2, true};
    for (const char* action : {"fail=EIO", "fail=ESTALE", "delay=5"}) {
      EveryCallMayGoWrong(client, action, std::string(action) == "delay=5" ? 0 : 1, stride);
    }
    if (DuePoints().All()) SweepsOfRanks(victim, true, stride);
  }
  if (!DuePoints().All()) return 0;
  SweepsOfOneRank(true, stride);
  EveryCallMayGoWrong({3, 1, true, kLong, 2, true}, "fail=EIO", 1, stride);
}
