// Removals take long where files are large or the store is slow: who needs their room waits for them, and who closes
// the engine does not.
#include "store/retention.h"

#include <chrono>
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
constexpr uint64_t kSize = 4096;

// An engine of one rank on a store with faults.
class Job {
 public:
  Job(const std::string& run, const std::string& plan) : run_(run) {
    env_ = std::make_unique<FaultEnv>(Env::Posix(), FaultsOf(plan), "");
    Options options;
    options.identity.world = 1;
    options.identity.file_size = kSize;
    options.commit_timeout_ms = kLong;
    options.run_dir = run;
    engine_ = std::make_unique<Engine>(options, env_.get());
  }

  Engine* engine() { return engine_.get(); }

  Status Save(int64_t step) {
    CHECK_OK(engine_->Submit(step, {{data_.data(), kSize, 0}}, "", kLong));
    return engine_->Wait(step, DF_EXTERNAL, kLong);
  }

  bool Exists(int64_t step) const {
    FileInfo info;
    CHECK_OK(Env::Posix()->Stat(Join(run_, StepName(step)), &info));
    return info.exists;
  }

 private:
  const std::string run_;
  const std::string data_ = std::string(kSize, 'd');
  std::unique_ptr<FaultEnv> env_;
  std::unique_ptr<Engine> engine_;
};

void AStepThatFindsTheStoreFullWaitsForWhatIsBeingRemoved() {
  TemporaryDir run;
  Job job(run.path(), "delay=300:rename:.trash-:1,fail=ENOSPC:pwrite:" + PartialName(3, Id{}) + ":1");
  CHECK_OK(job.Save(1));
  CHECK_OK(job.Save(2));
  CHECK_OK(job.engine()->Remove({1}));
  CHECK_OK(job.Save(3));
  CHECK(!job.Exists(1) && job.Exists(2) && job.Exists(3));
}

void AFullStoreOnWhichNothingIsRemovedFailsTheStep() {
  TemporaryDir run;
  Job job(run.path(), "fail=ENOSPC:pwrite:" + PartialName(2, Id{}) + ":1");
  CHECK_OK(job.Save(1));
  CHECK_OK(job.engine()->Drain(kLong));
  CHECK_EQ(job.Save(2).code(), Code::kNoSpace);
}

// Each removal takes 200 ms, and all of them longer than the bound.
void ClosingLeavesRemovalsThatTakeTooLong() {
  TemporaryDir run;
  constexpr int64_t kSteps = 16;
  constexpr uint64_t kBound = 2000;
  Job job(run.path(), "delay=200:rename:.trash-:1+");
  std::vector<int64_t> old;
  for (int64_t step = 1; step <= kSteps; ++step) {
    CHECK_OK(job.Save(step));
    if (step < kSteps) old.push_back(step);
  }
  CHECK_OK(job.engine()->Drain(kLong));
  CHECK_OK(job.engine()->Remove(old));
  std::string where;
  CHECK(job.engine()->Stop(kBound, &where));
  CHECK(!job.Exists(1) && job.Exists(kSteps - 1) && job.Exists(kSteps));
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::AStepThatFindsTheStoreFullWaitsForWhatIsBeingRemoved();
  deepfreeze::AFullStoreOnWhichNothingIsRemovedFailsTheStep();
  deepfreeze::ClosingLeavesRemovalsThatTakeTooLong();
}
