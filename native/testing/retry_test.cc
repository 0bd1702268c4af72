// An error of the store that passes, as while its server restarts, fails no checkpoint. A failed sync fails its
// checkpoint at once, because the data of that sync may be lost.
#include <cstring>
#include <thread>

#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "format/names.h"
#include "testing/check.h"
#include "testing/fault_env.h"
#include "testing/faults_of.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kSize = 20 * 4096 + 17;
// Until a job has made its model file durable, and of its record until that is.
constexpr const char* kRepeated[] = {"mkdir:.partial", "open:model",   "stat:model",     "fallocate:model",
                                     "pwrite:model",   "open:.record", "pwrite:.record", "rename:.record"};
// By rank 0 when it commits.
constexpr const char* kLookedAtAgain[] = {"list:.partial",   "pread:.record",   "open:manifest",
                                          "pwrite:manifest", "rename:manifest", "rename:0000 to"};
constexpr const char* kFinal[] = {"fdatasync:model", "close:model", "fsync:.record", "close:.record", "fsync:manifest"};

struct Job {
  TemporaryDir run{"/dev/shm"};
  TemporaryDir local{"/dev/shm"};
  std::string data = std::string(kSize, 'd');
  std::unique_ptr<FaultEnv> env;
  std::unique_ptr<Engine> engine;

  explicit Job(const std::string& plan, uint64_t commit_timeout_ms = kLong) {
    env = std::make_unique<FaultEnv>(Env::Posix(), FaultsOf(plan), "");
    Options options;
    options.identity.file_size = kSize;
    options.in_flight = 1;
    options.slots = 2;
    options.writers = 2;
    options.chunk_bytes = uint64_t{4} * 4096;
    options.commit_timeout_ms = commit_timeout_ms;
    options.run_dir = run.path();
    options.local_dir = local.path();
    engine = std::make_unique<Engine>(options, env.get());
  }

  Status Submit(int64_t step) { return engine->Submit(step, {{data.data(), kSize, 0}}, "p", kLong); }
  std::string Committed(int64_t step) {
    std::string bytes;
    CHECK_OK(ReadSmallFile(Env::Posix(), Join(Join(run.path(), StepName(step)), kModelName), kSize, &bytes));
    return bytes;
  }
};

void AnErrorThatPassesCostsNoCheckpoint(const char* error, const char* call, int times) {
  std::string plan;
  for (int nth = 1; nth <= times; ++nth) {
    plan += (nth > 1 ? "," : "") + std::string("fail=") + error + ":" + call + ":" + std::to_string(nth);
  }
  Job job(plan);
  CHECK_OK(job.Submit(1));
  CHECK_OK(job.engine->Wait(1, DF_EXTERNAL, kLong));
  CHECK(job.env->seen() > static_cast<uint64_t>(times));
  CHECK(job.Committed(1) == job.data);
  for (const Report& report : job.engine->Poll(9)) {
    CHECK(report.code == Code::kOk && (report.step == 1 || report.level == DF_INFORMS));
  }
}

void AFailedSyncIsNeverRepeated(const char* error, const char* call) {
  Job job("fail=" + std::string(error) + ":" + call + ":1+");
  CHECK_OK(job.Submit(1));
  CHECK(job.engine->Wait(1, DF_EXTERNAL, kLong).code() == Code::kIo);
  CHECK_EQ(job.env->seen(), 1U);
}

void OtherErrorsFailAtOnce() {
  for (const char* error : {"EACCES", "EROFS", "EMFILE"}) {
    Job job("fail=" + std::string(error) + ":mkdir:.partial:1+");
    CHECK_OK(job.Submit(1));
    CHECK(job.engine->Wait(1, DF_EXTERNAL, kLong).code() == Code::kIo);
  }
}

// While the store is away, the next checkpoint takes the memory of the first one. When the store is back, the first one
// is read from its slot.
void MemoryIsGivenUpMeanwhile() {
  const std::string second(kSize, 'e');  // outlives the engine, which reads it until it has closed
  Job job("fail=EIO:pwrite:model:1+");
  CHECK_OK(job.Submit(1));
  CHECK_OK(job.engine->Submit(2, {{second.data(), kSize, 0}}, "p", kLong));  // there is room for one
  bool released = false;
  while (!released) {
    for (const Report& report : job.engine->Poll(9)) released = released || (report.step == 1 && report.released);
    std::this_thread::yield();
  }
  std::string expected = job.data;
  job.data.assign(kSize, 'x');
  job.env->Heal();
  CHECK_OK(job.engine->Wait(1, DF_EXTERNAL, kLong));
  CHECK(job.Committed(1) == expected);
  CHECK_OK(job.engine->Wait(2, DF_EXTERNAL, kLong));
  CHECK(job.Committed(2) == second);
}

// The log has two lines of it, however often the engine tried.
void ItIsLoggedWhenItBeginsAndWhenItIsOver() {
  Job job("fail=EIO:pwrite:model:1,fail=EIO:pwrite:model:2,fail=EIO:pwrite:model:3");
  CHECK_OK(job.Submit(1));
  CHECK_OK(job.engine->Wait(1, DF_EXTERNAL, kLong));
  std::vector<std::string> lines;
  for (const Report& report : job.engine->Poll(9)) {
    if (report.step < 0 && report.level == DF_INFORMS) lines.push_back(report.message);
  }
  CHECK_EQ(lines.size(), 2U);
  const std::string where = Join(job.run.path(), StepName(1));
  CHECK_EQ(lines[0].find(where + ": tried again: "), 0U);
  CHECK(lines[0].find("Input/output error") != std::string::npos);
  CHECK_EQ(lines[1].find(where + ": the store takes it after "), 0U);
}

// A log that nobody takes keeps its newest lines.
void ALogThatNobodyReadsIsBounded() {
  Log log;
  for (size_t i = 0; i < Log::kMost + 3; ++i) log.Add(std::to_string(i));
  CHECK_EQ(log.Take(2), (std::vector<std::string>{"3", "4"}));
  CHECK_EQ(log.Take(9999).size(), Log::kMost - 2);
  CHECK(log.Take(9999).empty());
}

void TheStepsBoundEndsIt() {
  Job job("fail=ETIMEDOUT:pwrite:model:1+", 50);
  CHECK_OK(job.Submit(1));
  const Status status = job.engine->Wait(1, DF_EXTERNAL, kLong);
  CHECK(status.code() == Code::kIo && status.message().find("timed out") != std::string::npos);
  CHECK(job.env->seen() > 2);
}

// A wait that is over says what was waited for; closing waits for no store.
void ItIsNamedAndClosingEndsIt() {
  Job job("fail=EIO:pwrite:model:1+", 100 * kLong);
  CHECK_OK(job.Submit(1));
  while (job.env->seen() < 3) std::this_thread::yield();
  const Status status = job.engine->Wait(1, DF_EXTERNAL, 1);
  CHECK(status.code() == Code::kTimeout && status.message().find("Input/output error") != std::string::npos);
  std::string where;
  CHECK(job.engine->Stop(kLong, &where));
  bool exists = false;
  std::vector<std::string> names;
  CHECK_OK(Env::Posix()->List(Join(job.run.path(), PartialName(1, Id{})), &names, &exists));
  for (const std::string& name : names) CHECK(name.find(".failed") == std::string::npos);  // its slot may yet save it
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  for (const char* error : {"EIO", "ETIMEDOUT", "ESTALE", "EAGAIN"}) {
    for (const char* call : kRepeated) AnErrorThatPassesCostsNoCheckpoint(error, call, 1);
    for (const char* call : kLookedAtAgain) AnErrorThatPassesCostsNoCheckpoint(error, call, 1);
    for (const char* call : kFinal) AFailedSyncIsNeverRepeated(error, call);
  }
  for (const char* call : kRepeated) AnErrorThatPassesCostsNoCheckpoint("EIO", call, 4);
  for (const char* call : kLookedAtAgain) AnErrorThatPassesCostsNoCheckpoint("EIO", call, 4);
  OtherErrorsFailAtOnce();
  ItIsLoggedWhenItBeginsAndWhenItIsOver();
  ALogThatNobodyReadsIsBounded();
  MemoryIsGivenUpMeanwhile();
  TheStepsBoundEndsIt();
  ItIsNamedAndClosingEndsIt();
}
