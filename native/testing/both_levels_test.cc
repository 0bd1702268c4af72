// A checkpoint goes to the local tier and to the external store at once: neither waits for the other to begin, the
// commit comes when both are done, and whichever of them fails, the other one has what it needs.
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "engine/rescue.h"
#include "format/names.h"
#include "format/record.h"
#include "store/posix_store.h"
#include "testing/check.h"
#include "testing/count_env.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kSize = 300 * 4096 + 17;

// Holds up the threads that open a file below a directory until it is opened.
struct Gate {
  std::string below;
  Status then;  // what they get when the gate is opened
  Mutex mutex;
  CondVar changed;
  bool open GUARDED_BY(mutex) = false;

  Status Pass(const std::string& path) {
    if (path.compare(0, below.size(), below) != 0) return {};
    const MutexLock lock(&mutex);
    while (!open) changed.Wait(&mutex);
    return then;
  }
  void Open(const Status& status = Status()) {
    const MutexLock lock(&mutex);
    then = status;
    open = true;
    changed.NotifyAll();
  }
};

// An engine of one rank, whose captures lie in the caller's memory.
struct Job {
  enum class Hold { kLocal, kStore };

  explicit Job(Hold hold) : env(Env::Posix()) {
    gate.below = hold == Hold::kLocal ? local.path() : run.path();
    env.on_open = [this](const std::string& path) {
      return path.find(failing) != std::string::npos ? Status(Code::kIo, path + " is broken") : gate.Pass(path);
    };
    options.identity.file_size = kSize;
    options.identity.world = 1;
    options.in_flight = 1;
    options.slots = 2;
    options.writers = 3;
    options.chunk_bytes = uint64_t{16} * 4096;
    options.commit_timeout_ms = kLong;
    options.run_dir = run.path();
    options.local_dir = local.path();
    engine = std::make_unique<Engine>(options, &env);
  }
  static std::string Bytes(int64_t step) {
    std::string bytes(kSize, '\0');
    for (size_t i = 0; i < kSize; ++i) bytes[i] = static_cast<char>(i * 7 + i / 4096 + static_cast<size_t>(step));
    return bytes;
  }
  void Submit(int64_t step) {
    captures[step] = Bytes(step);
    const char* data = captures[step].data();
    CHECK_OK(engine->Submit(step, {{data, 1000, 0}, {data + 1000, kSize - 1000, 1000}}, "p", kLong));
  }
  // Waits until the store has had all bytes of a step.
  void AwaitTransfer() const {
    const PlaceCounters& store = engine->counters().external;
    for (uint64_t ms = 0; store.direct_bytes.value() + store.cached_bytes.value() < kSize; ++ms) {
      CHECK(ms < kLong / 6);
      Env::Posix()->SleepMillis(1);
    }
  }
  // The committed step has the bytes of its capture, and their checksums.
  void Check(int64_t step) const {
    const std::string directory = Join(run.path(), StepName(step));
    const std::string wanted = Bytes(step);
    std::string bytes;
    CHECK_OK(ReadSmallFile(Env::Posix(), Join(directory, kModelName), kSize, &bytes));
    CHECK(bytes == wanted);
    Record record;
    CHECK_OK(ReadSmallFile(Env::Posix(), Join(directory, kRecordsName), kMaxRecordSize, &bytes));
    CHECK_OK(DecodeRecord(bytes, directory, &record));
    uint64_t end = 0;
    for (const Extent& extent : record.extents) {
      CHECK_EQ(extent.file_offset, end);
      end += extent.size;
      CHECK_EQ(extent.crc, Crc32c(0, wanted.data() + extent.file_offset, static_cast<size_t>(extent.size)));
    }
    CHECK_EQ(end, kSize);
  }

  TemporaryDir run;
  TemporaryDir local;
  std::string failing = "/nothing";  // files with this in their path can't be opened
  Gate gate;
  CountEnv env;
  Options options;
  std::string captures[4];
  std::unique_ptr<Engine> engine;
};

void TheTransferDoesNotWaitForTheLocalTier() {
  Job job(Job::Hold::kLocal);
  job.Submit(1);
  job.AwaitTransfer();
  const Status waits = job.engine->Wait(1, DF_EXTERNAL, 1);  // for the local tier, which computes the checksums
  CHECK(waits.code() == Code::kTimeout && waits.message().find("to the local tier") != std::string::npos);
  for (const Report& report : job.engine->Poll(8)) CHECK(!report.released);
  job.gate.Open();
  CHECK_OK(job.engine->Wait(1, DF_EXTERNAL, kLong));
  job.Check(1);
}

// The memory of a step that is whole in its slot goes to the next one, and the store gets the rest from the slot.
void TheLocalTierDoesNotWaitForTheTransfer() {
  Job job(Job::Hold::kStore);
  job.Submit(1);
  CHECK_OK(job.engine->Wait(1, DF_LOCAL, kLong));
  job.Submit(2);  // in_flight is 1
  bool released = false;
  for (const Report& report : job.engine->Poll(8)) released = released || (report.step == 1 && report.released);
  CHECK(released);
  std::memset(job.captures[1].data(), 0, kSize);
  CHECK_OK(job.engine->Wait(2, DF_LOCAL, kLong));
  job.gate.Open();
  CHECK_OK(job.engine->Wait(2, DF_EXTERNAL, kLong));
  job.Check(1);
  job.Check(2);
}

void ALocalTierThatFailsLateTakesNoChecksumsAway() {
  Job job(Job::Hold::kLocal);
  job.Submit(1);
  job.AwaitTransfer();
  job.gate.Open(Status(Code::kNoSpace, "it is full"));
  CHECK_OK(job.engine->Wait(1, DF_EXTERNAL, kLong));
  job.Check(1);
  job.Submit(2);
  CHECK_OK(job.engine->Wait(2, DF_EXTERNAL, kLong));
  job.Check(2);
}

// The store refuses a step while its slot is being written: the slot is made whole all the same, for the next start.
void ASlotOfAStepThatTheStoreRefusesIsWhole() {
  Job job(Job::Hold::kLocal);
  job.failing = job.run.path();
  job.Submit(1);
  CHECK_EQ(job.engine->Wait(1, DF_EXTERNAL, 50).code(), Code::kTimeout);  // the slot comes first
  job.gate.Open();
  CHECK_EQ(job.engine->Wait(1, DF_EXTERNAL, kLong).code(), Code::kIo);
  CHECK_OK(job.engine->Drain(kLong));
  const std::vector<Report> reports = job.engine->Poll(8);
  CHECK(reports.size() == 1 && reports.front().released && reports.front().level == DF_LOCAL);
  job.engine.reset();
  PosixStore store(Env::Posix(), job.run.path());
  const std::string slot = SlotStore(Env::Posix(), job.local.path(), job.options.identity, 1).path(0);
  CHECK_OK(RescueSlot(Env::Posix(), slot, &store));
  CHECK_OK(store.Finish(1, job.options.identity.attempt));
  std::string bytes;
  const std::string model = Join(Join(job.run.path(), StepName(1)), kModelName);
  CHECK_OK(ReadSmallFile(Env::Posix(), model, kSize, &bytes));
  CHECK(bytes == Job::Bytes(1));
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::TheTransferDoesNotWaitForTheLocalTier();
  deepfreeze::TheLocalTierDoesNotWaitForTheTransfer();
  deepfreeze::ALocalTierThatFailsLateTakesNoChecksumsAway();
  deepfreeze::ASlotOfAStepThatTheStoreRefusesIsWhole();
}
