// The table of jobs reports each checkpoint, stage by stage.
#include <chrono>
#include <string>
#include <vector>

#include "deepfreeze/deepfreeze.h"
#include "engine/job_table.h"
#include "testing/check.h"
#include "testing/count_env.h"

namespace deepfreeze {
namespace {

constexpr double kNotYet = -1;

// A checkpoint, each of whose stages takes a second.
struct Told {
  CountEnv env{Env::Posix()};
  uint64_t seconds = 1000;  // on the clock
  JobTable table;
  JobRef job = std::make_shared<Job>();

  Told() : table(Clock(), TableOptions{2, 2, true}) {
    job->step = 5;
    job->nbytes = 7;
    CHECK_OK(table.Submit(job, false, 0));
  }
  void Pass(LevelId level, size_t stage) {
    CHECK_EQ(table.Next(level, stage), job);
    ++seconds;
    table.Finish(job, level);
  }
  Env* Clock() {
    env.on_now = [this] { return seconds * 1000000; };
    return &env;
  }
  // times: how long after the submission it was local, written and external, as far as it is.
  void Reports(int level, bool released, const std::vector<double>& times) {
    const std::vector<Report> reports = table.Poll(8);
    CHECK_EQ(reports.size(), 1U);
    const Report& one = reports.front();
    CHECK(one.step == 5 && one.level == level && one.code == Code::kOk && one.nbytes == 7);
    CHECK_EQ(one.released, released);
    const double took[] = {one.local_s, one.written_s, one.external_s};
    for (size_t i = 0; i < 3; ++i) CHECK_EQ(took[i], i < times.size() ? times[i] : kNotYet);
  }
  void IsUnderWay(int level, bool published, double age) {
    const std::vector<UnderWay> found = table.Unfinished(8);
    CHECK_EQ(found.size(), 1U);
    const UnderWay& one = found.front();
    CHECK(one.step == 5 && one.level == level && one.published == published && one.nbytes == 7 && one.age_s == age);
    CHECK_EQ(one.waits_for, "");
  }
};

// From its submission on. Its memory is released when the transfer has read it, though it is whole on the local tier.
void EachStageIsTold() {
  Told told;
  CHECK(told.table.Poll(8).empty());
  told.IsUnderWay(DF_CAPTURED, false, 0);
  told.Pass(kLocal, 0);
  told.Reports(DF_LOCAL, false, {1});
  told.IsUnderWay(DF_LOCAL, false, 1);
  told.Pass(kExternal, kTransfer);
  told.Reports(DF_LOCAL, true, {1});
  told.IsUnderWay(DF_LOCAL, false, 2);
  CHECK_EQ(told.table.IdleMs(), 2000U);  // the transfer itself notes that bytes move
  told.Pass(kExternal, kPublish);
  CHECK_EQ(told.table.IdleMs(), 0U);
  told.Reports(DF_LOCAL, true, {1, 3});
  told.IsUnderWay(DF_LOCAL, true, 3);
  told.Pass(kExternal, kCommit);
  told.Reports(DF_EXTERNAL, true, {1, 3, 4});
  CHECK(told.table.Unfinished(8).empty() && told.table.Poll(8).empty());
}

// A wait that times out names the commit only until the step's fate is known. Here the local level still writes then.
void AStepThatIsOverWaitsForNoCommit() {
  for (const bool fails : {false, true}) {
    Told told;
    const auto says = [&](const char* what) {
      const Status drained = told.table.Drain(std::chrono::steady_clock::now());
      CHECK(drained.code() == Code::kTimeout && drained.message().find(what) != std::string::npos);
    };
    CHECK_EQ(told.table.Next(kLocal, 0), told.job);
    for (const size_t stage : {kTransfer, kPublish}) told.Pass(kExternal, stage);
    CHECK_EQ(told.table.Next(kExternal, kCommit), told.job);
    told.table.SetWaitsFor(told.job, "waits for its commit (rank 3)");
    says("waits for its commit (rank 3)");
    if (fails) {
      told.table.Fail(told.job, kExternal, Status(Code::kIo, "the store"));
    } else {
      told.table.Finish(told.job, kExternal);
    }
    says("step 5 is being finished");
  }
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  EachStageIsTold();
  AStepThatIsOverWaitsForNoCommit();
}
