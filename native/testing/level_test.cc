// A level that the product does not have, in one file: a copy of each shard in a second directory.
#include "engine/level.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "engine/stage.h"
#include "format/names.h"
#include "testing/check.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kSize = 4096 + 17;

// While it is closed, copies wait before they begin.
struct Gate {
  std::atomic<bool> open{true};
  std::atomic<int> waiting{0};
};

class SecondCopy : public Level {
 public:
  SecondCopy(const StageContext& context, const std::string& directory, Gate* gate)
      : context_(context), directory_(directory), gate_(gate) {}

  Status Protect(const JobRef& shard, size_t) override {
    ++gate_->waiting;
    while (!gate_->open && !context_.table->stopping()) context_.env->SleepMillis(1);
    if (context_.table->stopping()) return Status(Code::kClosed, "closing");
    std::string bytes;
    for (const Region& region : shard->regions) bytes.append(region.data, region.size);
    DF_RETURN_IF_ERROR(ReplaceFile(context_.env, Join(directory_, std::to_string(shard->step)), bytes, false));
    if (shard->step <= released_) Release(shard);
    return {};
  }

  void Release(const JobRef& shard) noexcept override {
    released_ = std::max<int64_t>(released_, shard->step);
    for (int64_t older = 0; older <= shard->step; ++older) {
      (void)context_.env->Unlink(Join(directory_, std::to_string(older))).ok();
    }
  }

 private:
  const StageContext context_;
  const std::string directory_;
  Gate* const gate_;
  std::atomic<int64_t> released_{-1};
};

// One rank of `world` with a second copy of its shard.
struct Job {
  explicit Job(uint32_t world, const std::string& local = "", const std::string& second = "") {
    Options options;
    options.identity.world = world;
    options.identity.file_size = kSize;
    options.in_flight = 3;
    options.slots = 3;
    options.commit_timeout_ms = kLong;
    options.run_dir = run.path();
    options.local_dir = local;
    const std::string directory = second.empty() ? copies.path() : second;
    const LevelRow row{"to a second directory", {{"df-copy", 2}}, true, {0, 0, 0}};
    const LevelEntry entry{row, [this, directory](const StageContext& context) {
                             return std::make_unique<SecondCopy>(context, directory, &gate);
                           }};
    engine = std::make_unique<Engine>(options, Env::Posix(), nullptr, std::vector<LevelEntry>{entry});
  }
  std::string* Submit(int64_t step) {
    captures[step] = std::string(kSize, static_cast<char>('a' + step));
    CHECK_OK(engine->Submit(step, {{captures[step].data(), kSize, 0}}, "p", kLong));
    return &captures[step];
  }
  std::string Copy(int64_t step) const {
    std::string bytes;
    (void)ReadSmallFile(Env::Posix(), Join(copies.path(), std::to_string(step)), kSize, &bytes).ok();
    return bytes;
  }

  TemporaryDir run;
  TemporaryDir copies;
  Gate gate;
  std::string captures[4];
  std::unique_ptr<Engine> engine;
};

template <typename Met>
void Await(const Met& met) {
  for (uint64_t ms = 0; !met(); ++ms) {
    CHECK(ms < kLong);
    Env::Posix()->SleepMillis(1);
  }
}

void EachShardIsInTheSecondDirectoryUntilItsCommit() {
  TemporaryDir local("/dev/shm");
  for (const std::string& tier : {std::string(), local.path()}) {
    Job waits(2, tier);  // for rank 1, which never comes
    for (int64_t step = 1; step <= 3; ++step) waits.Submit(step);
    for (int64_t step = 1; step <= 3; ++step) Await([&] { return waits.Copy(step) == waits.captures[step]; });
    Job commits(1, tier);
    for (int64_t step = 1; step <= 3; ++step) commits.Submit(step);
    CHECK_OK(commits.engine->Drain(kLong));
    for (int64_t step = 1; step <= 3; ++step) CHECK_OK(commits.engine->Wait(step, DF_EXTERNAL, kLong));
    for (int64_t step = 1; step <= 3; ++step) CHECK_EQ(commits.Copy(step), "");
  }
}

// Levels that do not wait for each other start together, and a shard's memory stays until the last one has read it.
void MemoryStaysUntilTheSecondCopyIsMade() {
  Job job(1);
  job.gate.open = false;
  job.Submit(1);
  job.Submit(2);
  Await([&] { return job.gate.waiting == 2; });  // both threads of the level have a shard
  CHECK_OK(job.engine->Wait(2, DF_EXTERNAL, kLong));
  for (const Report& report : job.engine->Poll(8)) CHECK(!report.released);
  CHECK(job.engine->Drain(0).code() == Code::kTimeout);
  job.gate.open = true;
  CHECK_OK(job.engine->Drain(kLong));
  const std::vector<Report> reports = job.engine->Poll(8);
  CHECK_EQ(reports.size(), size_t{2});
  for (const Report& report : reports) CHECK(report.released && report.level == DF_EXTERNAL);
  for (int64_t step = 1; step <= 2; ++step) CHECK_EQ(job.Copy(step), "");
}

void AStepIsCommittedWithoutItsSecondCopy() {
  Job job(1, "", "/nowhere");
  for (int64_t step = 1; step <= 3; ++step) job.Submit(step);
  CHECK_OK(job.engine->Drain(kLong));
  for (int64_t step = 1; step <= 3; ++step) CHECK_OK(job.engine->Wait(step, DF_EXTERNAL, kLong));
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::EachShardIsInTheSecondDirectoryUntilItsCommit();
  deepfreeze::MemoryStaysUntilTheSecondCopyIsMade();
  deepfreeze::AStepIsCommittedWithoutItsSecondCopy();
}
