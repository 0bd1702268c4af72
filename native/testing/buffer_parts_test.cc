// A buffer is given to the next capture part by part, while the last one is still being written from it. Every byte
// that is committed is the captured one, whatever goes wrong meanwhile, and captures never hold more than the bytes
// that they are given.
#include "engine/buffer_parts.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#include "base/crc32c.h"
#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "format/names.h"
#include "format/record.h"
#include "graph/capture_area.h"
#include "testing/check.h"
#include "testing/count_env.h"
#include "testing/fault_env.h"
#include "testing/faults_of.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kChunk = uint64_t{4} * 4096;
constexpr size_t kChunks = 6;  // of a capture; the last one is small
constexpr uint64_t kSize = (kChunks - 1) * kChunk + 17;

void PartsComeFreeWhenTheLastLevelHasReadThem() {
  char memory[100] = {};
  const BufferSpan span{memory, 100, 40};
  CHECK_EQ(span.parts(), 3U);
  // Two extents in the first part, of which one ends in the second; one elsewhere; one in the last part.
  const char elsewhere = 0;
  BufferParts parts(span, {{0, 10, 0}, {10, 50, 0}, {60, 1, 0}, {61, 5, 0}},
                    {memory, memory + 10, &elsewhere, memory + 90});
  CHECK(parts.Free(0, 2));
  parts.Begin(Only(kLocal) | Only(kExternal));
  CHECK(!parts.Free(0, 0) && !parts.Free(1, 1) && !parts.Free(2, 2));
  CHECK(parts.MayRead(kExternal, 0, 4) && !parts.HasRead(kExternal, 0, 1));
  CHECK(!parts.Drop(kExternal, 0, 2));  // the local tier still reads them
  CHECK(!parts.MayRead(kExternal, 0, 4) && parts.MayRead(kExternal, 2, 2) && parts.HasRead(kExternal, 0, 2));
  CHECK(!parts.HasRead(kExternal, 0, 3));
  CHECK(!parts.Drop(kLocal, 0, 1));
  CHECK(parts.Drop(kLocal, 1, 1));
  CHECK(parts.Free(0, 1) && !parts.Free(0, 2));
  CHECK(!parts.Drop(kLocal, 0, 2));  // again
  CHECK(!parts.Drop(kLocal, 2, 1) && !parts.Drop(kExternal, 2, 1));
  CHECK(!parts.Drop(kExternal, 3, 1) && parts.Drop(kLocal, 3, 1));
  CHECK(parts.Free(0, 2));
  const BufferParts none;
  CHECK(none.empty() && none.MayRead(kExternal, 0, 3) && !none.HasRead(kExternal, 0, 3) && !none.Free(0, 0));
}

void PartsAreRankedInTheOrderInWhichTheyWereTaken() {
  PartOrder order;
  order.Reset(4);
  order.Take(2, 3);
  order.Take(0, 2);
  order.Take(9, 9);
  CHECK(order.rank(2) < order.rank(3) && order.rank(3) < order.rank(0) && order.rank(0) < order.rank(1));
  order.Reset(4);
  order.Take(1, 1);
  CHECK(order.rank(1) < order.rank(2));
}

// One rank with one buffer, whose captures come to the parts from the last one to the first.
class Training {
 public:
  explicit Training(const std::string& faults, bool local_disk = false, uint64_t commit_timeout_ms = kLong) {
    env_ = std::make_unique<FaultEnv>(Env::Posix(), FaultsOf(faults), "");
    Options options;
    options.identity.file_size = kSize;
    options.in_flight = 1;
    options.slots = 2;
    options.writers = 1;
    options.chunk_bytes = kChunk;
    options.commit_timeout_ms = commit_timeout_ms;
    options.run_dir = run_.path();
    if (local_disk) options.local_dir = local_.path();
    engine_ = std::make_unique<Engine>(options, env_.get());
    CHECK_OK(engine_->Plan({{nullptr, kSize, 0}}, 1, 0, &plan_));
  }

  Engine* engine() { return engine_.get(); }
  FaultEnv* env() { return env_.get(); }
  const std::string& run() const { return run_.path(); }

  Status Take(size_t chunk, uint64_t timeout_ms) { return engine_->AwaitParts(At(chunk), BytesOf(chunk), timeout_ms); }
  void Reserve() { CHECK_OK(engine_->Reserve(kLong, &base_)); }
  Status Capture(char letter, uint64_t timeout_ms = kLong) {
    Reserve();
    for (size_t chunk = kChunks; chunk-- > 0;) {
      DF_RETURN_IF_ERROR(Take(chunk, timeout_ms));
      std::memset(At(chunk), letter, BytesOf(chunk));
    }
    return {};
  }
  Status Submit(int64_t step) { return engine_->Submit(step, {{base_ + plan_.places[0], kSize, 0}}, "p", kLong); }
  Status Await(int64_t step) { return engine_->Wait(step, DF_EXTERNAL, kLong); }
  void CheckCommitted(int64_t step, char letter) {
    std::string bytes;
    CHECK_OK(ReadSmallFile(Env::Posix(), Join(Join(run_.path(), StepName(step)), kModelName), kSize, &bytes));
    CHECK(bytes == std::string(kSize, letter));
    const std::string directory = Join(run_.path(), StepName(step));
    std::string record_bytes;
    Record record;
    CHECK_OK(ReadSmallFile(Env::Posix(), Join(directory, kRecordsName), kMaxRecordSize, &record_bytes));
    CHECK_OK(DecodeRecord(record_bytes, directory, &record));
    CHECK_EQ(record.extents.size(), kChunks);
    for (const Extent& extent : record.extents) {
      CHECK_EQ(extent.crc, Crc32c(0, bytes.data() + extent.file_offset, extent.size));
    }
  }

 private:
  char* At(size_t chunk) { return base_ + plan_.places[0] + chunk * kChunk; }
  static uint64_t BytesOf(size_t chunk) { return std::min(kChunk, kSize - chunk * kChunk); }

  TemporaryDir run_{"/dev/shm"};
  TemporaryDir local_;
  std::unique_ptr<FaultEnv> env_;
  std::unique_ptr<Engine> engine_;
  CapturePlan plan_;
  char* base_ = nullptr;
};

// The store takes the first two extents of step 1 and is away then. They fill the last part of the buffer, and half of
// the one before: the next capture has the memory of the last part. RETURNS once that is so.
void CaptureHalfway(Training* training) {
  CHECK_OK(training->Capture('a'));
  CHECK_OK(training->Submit(1));
  while (training->env()->seen() < 3) std::this_thread::yield();
  training->Reserve();
  CHECK_EQ(training->engine()->Room(), 0U);
  CHECK_OK(training->Take(kChunks - 1, kLong));
  const Status waits = training->Take(kChunks - 2, 1);
  CHECK(waits.code() == Code::kTimeout && waits.message().find("step 1") != std::string::npos);
}

constexpr const char* kAwayAfterTwo = "fail=EIO:pwrite:model:3+";

void TheNextCaptureTakesPartsAsSoonAsTheyAreWritten() {
  Training training(kAwayAfterTwo);
  CaptureHalfway(&training);
  std::thread capture([&] { CHECK_OK(training.Capture('b')); });
  training.env()->Heal();
  capture.join();
  CHECK_OK(training.Submit(2));
  CHECK_OK(training.Await(1));
  CHECK_OK(training.Await(2));
  training.CheckCommitted(1, 'a');
  training.CheckCommitted(2, 'b');
}

// What was written of the step can't be written again from memory, so the step fails where the store has lost it. The
// next one is not touched by that.
void AStoreThatHasLostWrittenPartsFailsTheStep() {
  Training training(kAwayAfterTwo);
  CaptureHalfway(&training);
  CHECK_OK(Env::Posix()->Unlink(Join(Join(training.run(), PartialName(1, Id{})), kModelName)));
  training.env()->Heal();
  CHECK_OK(training.Capture('b'));
  CHECK_OK(training.Submit(2));
  const Status status = training.Await(1);
  CHECK(status.code() == Code::kIncomplete);
  CHECK(status.message().find("a newer checkpoint has its memory") != std::string::npos);
  CHECK_OK(training.Await(2));
  training.CheckCommitted(2, 'b');
}

// Nobody has the memory of the written parts yet: they are written again.
void AStoreThatHasLostWrittenPartsGetsThemAgain() {
  Training training(kAwayAfterTwo);
  CHECK_OK(training.Capture('a'));
  CHECK_OK(training.Submit(1));
  while (training.env()->seen() < 3) std::this_thread::yield();
  CHECK_OK(Env::Posix()->Unlink(Join(Join(training.run(), PartialName(1, Id{})), kModelName)));
  training.env()->Heal();
  CHECK_OK(training.Await(1));
  training.CheckCommitted(1, 'a');
}

// The store loses the file twice, and the second time it is made again by a call that fails afterwards.
void AFileThatWasMadeAgainIsNotTakenForTheOldOne() {
  Training training(std::string(kAwayAfterTwo) + ",fail=EIO:fallocate:model:2");
  CaptureHalfway(&training);
  CHECK_OK(Env::Posix()->Unlink(Join(Join(training.run(), PartialName(1, Id{})), kModelName)));
  CHECK_OK(training.Capture('b'));  // as soon as the step has failed
  const Status status = training.Await(1);
  CHECK(status.message().find("a newer checkpoint has its memory") != std::string::npos);
  training.env()->Heal();
  CHECK_OK(training.Submit(2));
  CHECK_OK(training.Await(2));
  training.CheckCommitted(2, 'b');
}

// An error of a write may be that of an earlier one. Then a sync of the file fails too, and what was written before is
// not taken for kept.
void AFailedSyncAfterAFailedWriteFailsTheStep() {
  Training training(std::string(kAwayAfterTwo) + ",fail=EIO:fdatasync:model:1");
  CaptureHalfway(&training);
  CHECK_OK(training.Capture('b'));
  CHECK(training.Await(1).message().find("a newer checkpoint has its memory") != std::string::npos);
  training.env()->Heal();
  CHECK_OK(training.Submit(2));
  CHECK_OK(training.Await(2));
  training.CheckCommitted(2, 'b');
}

// The transfer has left the checksums of the first parts to the local tier, which fails before it has read them.
void ChecksumsThatTheLocalTierOwesAreComputed() {
  Training training(
      "delay=100:open:.slot:1,fail=EACCES:pwrite:.slot:1+,fail=EIO:pwrite:model:3,fail=EIO:pwrite:model:4", true);
  CHECK_OK(training.Capture('a'));
  CHECK_OK(training.Submit(1));
  CHECK_OK(training.Await(1));
  training.CheckCommitted(1, 'a');
}

// Whoever waits for the first part of a buffer is woken when it has been written.
void AReservationIsWokenByTheFirstPart() {
  Training training(kAwayAfterTwo);
  CHECK_OK(training.Capture('a'));
  CHECK_OK(training.Submit(1));
  training.Reserve();
  training.env()->Heal();
  CHECK_OK(training.Capture('b'));
  CHECK_OK(training.Submit(2));
  CHECK_OK(training.Await(2));
  training.CheckCommitted(1, 'a');
}

void AStepThatFailsLeavesItsMemoryToTheNextCapture() {
  Training training("fail=EACCES:pwrite:model:3+");
  CHECK_OK(training.Capture('a'));
  CHECK_OK(training.Submit(1));
  CHECK_OK(training.Capture('b'));
  CHECK(training.Await(1).code() == Code::kIo);
  training.env()->Heal();
  CHECK_OK(training.Submit(2));
  CHECK_OK(training.Await(2));
  training.CheckCommitted(2, 'b');
}

// The store takes nothing, and the local tier has the checkpoint: the next capture gets the whole memory.
void TheLocalTierFreesTheMemoryWhileTheStoreIsAway() {
  Training training("fail=EIO:pwrite:model:1+", true);
  CHECK_OK(training.Capture('a'));
  CHECK_OK(training.Submit(1));
  CHECK_OK(training.Capture('b'));
  CHECK_OK(training.Submit(2));
  training.env()->Heal();
  CHECK_OK(training.Await(1));
  CHECK_OK(training.Await(2));
  training.CheckCommitted(1, 'a');
  training.CheckCommitted(2, 'b');
}

// The local tier fails when it has the first parts. Their checksums are known, those of the others the transfer
// computes from the memory, which stays until then.
void ALocalTierThatFailsHalfwayCostsNoByte() {
  Training training("fail=EACCES:pwrite:.slot:4", true);
  for (int64_t step = 1; step < 4; ++step) {
    const char letter = static_cast<char>('a' + step);
    CHECK_OK(training.Capture(letter));
    CHECK_OK(training.Submit(step));
  }
  for (int64_t step = 1; step < 4; ++step) {
    CHECK_OK(training.Await(step));
    training.CheckCommitted(step, static_cast<char>('a' + step));
  }
}

void ClosingEndsTheWaitForAPart() {
  Training training(kAwayAfterTwo);
  CaptureHalfway(&training);
  Status ended;
  std::thread waits([&] { ended = training.Take(0, 100 * kLong); });
  std::string where;
  CHECK(training.engine()->Stop(kLong, &where));
  waits.join();
  CHECK(ended.code() == Code::kClosed);
}

// A training of random length and pace with a memory for `captures` captures, of which the first one lies in memory of
// the area's own, as it does before there is an engine.
void CapturesNeverHoldMoreThanTheyAreGiven(uint32_t captures, const std::string& local, uint32_t seed) {
  std::mt19937 random(seed);
  const auto dice = [&](uint32_t sides) { return random() % sides; };
  TemporaryDir run("/dev/shm");
  CountEnv env(Env::Posix());
  Options options;
  options.identity.file_size = kSize;
  options.in_flight = captures;
  options.slots = std::max(2U, captures);
  options.writers = 2;
  options.chunk_bytes = kChunk;
  options.commit_timeout_ms = kLong;
  options.one_memory = true;
  options.run_dir = run.path();
  options.local_dir = local;
  const bool slots = !local.empty() && Env::Posix()->InMemory(local);
  uint64_t blocks = options.writers * kChunk;
  if (!local.empty() && !slots) blocks += (options.writers + 1) * kChunk;
  auto area = std::make_shared<CaptureArea>(&env);
  const uint64_t number = CaptureArea::Register(area);  // so that MemoryOf knows its memory
  auto engine = std::make_shared<Engine>(options, &env);
  std::vector<char> tensor(kSize);
  CapturePlan plan;
  const int64_t steps = 12;
  for (int64_t step = 1; step <= steps; ++step) {
    std::fill(tensor.begin(), tensor.end(), static_cast<char>('a' + step));
    if (step == 1) CHECK_OK(area->SetGroup(0, {{0, 0, kSize, 0}}));
    CHECK_OK(area->Capture(0, {{tensor.data(), kSize}}));
    if (step == 1) {
      CHECK_OK(engine->Plan({{nullptr, kSize, 0}}, 1, 0, &plan));
      CHECK_OK(area->SetGroup(0, {{0, 0, kSize, plan.places[0]}}));
      area->Attach(engine, kLong);
    }
    std::fill(tensor.begin(), tensor.end(), '!');  // the next step changes it
    char* base = nullptr;
    auto owner = CaptureArea::Owner::kEngine;
    CHECK_OK(area->Collect(&base, &owner));
    CHECK_EQ(owner == CaptureArea::Owner::kArea, step == 1);
    const std::vector<Region> regions{{step == 1 ? base : base + plan.places[0], kSize, 0}};
    std::vector<std::shared_ptr<Pages>> memory = CaptureArea::MemoryOf(regions);
    CHECK_EQ(memory.size(), step == 1 ? 1U : 0U);
    const std::vector<const Pages*> left(memory.size(), memory.empty() ? nullptr : memory.front().get());
    CHECK_OK(engine->Submit(step, regions, "p", kLong, std::move(memory)));
    CaptureArea::Leave(left);
    if (dice(3) == 0) CHECK_OK(engine->Wait(step, DF_LOCAL, kLong));
    if (dice(5) == 0) CHECK_OK(engine->Wait(step, DF_EXTERNAL, kLong));
    (void)engine->Poll(100);
  }
  CHECK_OK(engine->Drain(kLong));
  for (int64_t step = 1; step <= steps; ++step) {
    std::string bytes;
    CHECK_OK(ReadSmallFile(Env::Posix(), Join(Join(run.path(), StepName(step)), kModelName), kSize, &bytes));
    CHECK(bytes == std::string(kSize, static_cast<char>('a' + step)));
  }
  // Slots in memory are files, which this Env does not count. The first capture and the slots do not exist together in
  // full: one slot is not touched while the area's own memory is held.
  CHECK(env.most_pages <= (slots ? 1 : captures) * plan.size + blocks);
  area->Attach(nullptr, kLong);
  CaptureArea::Forget(number);
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  PartsComeFreeWhenTheLastLevelHasReadThem();
  PartsAreRankedInTheOrderInWhichTheyWereTaken();
  TheNextCaptureTakesPartsAsSoonAsTheyAreWritten();
  AStoreThatHasLostWrittenPartsFailsTheStep();
  AStoreThatHasLostWrittenPartsGetsThemAgain();
  AFileThatWasMadeAgainIsNotTakenForTheOldOne();
  AFailedSyncAfterAFailedWriteFailsTheStep();
  ChecksumsThatTheLocalTierOwesAreComputed();
  AReservationIsWokenByTheFirstPart();
  AStepThatFailsLeavesItsMemoryToTheNextCapture();
  TheLocalTierFreesTheMemoryWhileTheStoreIsAway();
  ALocalTierThatFailsHalfwayCostsNoByte();
  ClosingEndsTheWaitForAPart();
  const uint32_t seed = std::random_device()();
  std::printf("seed %u\n", seed);
  for (uint32_t n = 0; n < 20; ++n) {
    const TemporaryDir disk;
    const TemporaryDir memory("/dev/shm");
    CapturesNeverHoldMoreThanTheyAreGiven(1 + n % 3, "", seed + n);
    CapturesNeverHoldMoreThanTheyAreGiven(1 + n % 3, disk.path(), seed + n);
    CapturesNeverHoldMoreThanTheyAreGiven(2 + n % 2, memory.path(), seed + n);
  }
}
