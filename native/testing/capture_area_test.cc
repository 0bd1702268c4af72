// Captures into the engine's memory: the captured bytes are the committed ones, in whichever memory the capture was,
// and memory that is in use is not given to another capture.
#include "graph/capture_area.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "base/copy.h"
#include "base/crc32c.h"
#include "base/idle_cores.h"
#include "deepfreeze/deepfreeze.h"
#include "engine/checksum.h"
#include "format/names.h"
#include "testing/check.h"
#include "testing/count_env.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kLarge = 40 * 4096 + 100;
constexpr uint64_t kSmall = 1000;
constexpr uint64_t kHead = 512;  // bytes of the file that no graph captures
constexpr uint64_t kFile = kHead + kSmall + 2584 + kLarge;
constexpr uint64_t kSide = 64;

// The file: head, small tensor, gap (also not captured), large tensor. Two groups: the large tensor; the small one and
// a tensor that is in no file.
class Training {
 public:
  Training(uint32_t world, const std::string& local, Env* env = Env::Posix())
      : area_(std::make_shared<CaptureArea>(env)) {
    Options options;
    options.identity.world = world;
    options.identity.file_size = kFile;
    options.in_flight = 2;
    options.slots = 2;
    options.writers = 2;
    options.chunk_bytes = kSmallExtent;
    options.commit_timeout_ms = kLong;
    options.run_dir = run_.path();
    options.local_dir = local;
    engine_ = std::make_shared<Engine>(options, env);
    CHECK_OK(area_->SetGroup(0, {{0, 0, kLarge, 0}}));
    CHECK_OK(area_->SetGroup(1, {{1, 0, kSmall, kLarge}, {0, 8, 16, kLarge + kSmall}}));
  }

  void Attach(uint64_t timeout_ms) {
    CapturePlan plan;
    CHECK_OK(engine_->Plan(Regions(nullptr, {0, 0, 0, 0}), 16, kSide, &plan));
    places_ = plan.places;
    side_ = plan.side;
    CHECK_OK(area_->SetGroup(0, {{0, 0, kLarge, places_[3]}}));
    CHECK_OK(area_->SetGroup(1, {{1, 0, kSmall, places_[1]}, {0, 8, 16, side_}}));
    area_->Attach(engine_, timeout_ms);
  }

  // Attaches the area to the engine again. The area drops its capture, and the next capture takes the same memory.
  void AttachAgain() { area_->Attach(engine_, kLong); }

  // One step of a graph: the groups are captured by two threads at once.
  void Capture(int64_t step) {
    large_.assign(kLarge, static_cast<char>('a' + step % 26));
    small_.assign(kSmall, static_cast<char>('A' + step % 26));
    std::string seed = "01234567seed-" + std::to_string(1000 + step) + "-------";
    std::thread other([&] { CHECK_OK(area_->Capture(0, {{large_.data(), kLarge}})); });
    CHECK_OK(area_->Capture(1, {{seed.data(), seed.size()}, {small_.data(), kSmall}}));
    other.join();
  }

  Status Submit(int64_t step) {
    char* base = nullptr;
    auto owner = CaptureArea::Owner::kEngine;
    DF_RETURN_IF_ERROR(area_->Collect(&base, &owner));
    const bool own = owner == CaptureArea::Owner::kArea;
    const std::vector<uint64_t> places = own ? std::vector<uint64_t>{0, kLarge, 0, 0} : places_;
    const uint64_t side = own ? kLarge + kSmall : side_;
    return engine_->Submit(step, Regions(base, places), std::string(base + side, 16), kLong);
  }

  std::string Expected() const { return head_ + small_ + gap_ + large_; }
  std::string Committed(int64_t step) {
    std::string bytes;
    CHECK_OK(ReadSmallFile(Env::Posix(), Join(Join(run_.path(), StepName(step)), kModelName), kFile, &bytes));
    return bytes;
  }

  Engine* engine() { return engine_.get(); }
  CaptureArea* area() { return area_.get(); }
  uint64_t place_of_large() const { return places_[3]; }

 private:
  std::vector<Region> Regions(char* base, const std::vector<uint64_t>& places) {
    const auto at = [&](size_t region) { return base == nullptr ? nullptr : base + places[region]; };
    return {{head_.data(), kHead, 0},
            {at(1), kSmall, kHead},
            {gap_.data(), gap_.size(), kHead + kSmall},
            {at(3), kLarge, kHead + kSmall + gap_.size()}};
  }

  TemporaryDir run_;
  std::string head_ = std::string(kHead, 'h');
  std::string gap_ = std::string(2584, 'g');
  std::string large_;
  std::string small_;
  std::vector<uint64_t> places_;
  uint64_t side_ = 0;
  std::shared_ptr<Engine> engine_;
  std::shared_ptr<CaptureArea> area_;
};

void WhatIsCapturedIsCommitted(const std::string& local) {
  Training training(1, local);
  training.Capture(0);  // before there is a plan
  const std::string first = training.Expected();
  training.Attach(kLong);
  CHECK_OK(training.Submit(0));
  training.Capture(1);
  CHECK_OK(training.Submit(1));  // must not overtake the first, which has to be written to the local tier
  CHECK_OK(training.engine()->Wait(0, DF_EXTERNAL, kLong));
  CHECK_EQ(training.Committed(0), first);
  training.area()->DropOwn();
  for (int64_t step = 2; step < 40; ++step) {
    training.Capture(step);
    if (step % 7 == 0) training.Capture(step);  // again, before anybody has collected it
    CHECK_OK(training.Submit(step));
    if (step % 5 == 0) {
      CHECK_OK(training.engine()->Wait(step, step % 2 == 0 ? DF_LOCAL : DF_EXTERNAL, kLong));
    }
    for (const Report& report : training.engine()->Poll(10)) CHECK(report.code == Code::kOk);
  }
  CHECK_OK(training.engine()->Drain(kLong));
  CHECK_EQ(training.Committed(39), training.Expected());
}

// The other rank never writes, so nothing is committed. After `room` captures there is no memory for another one.
void ACaptureWithoutMemoryIsToldAndDoesNotFailTheGraph(const std::string& local, int64_t room) {
  Training training(2, local);
  training.Attach(room > 2 ? 2000 : 30);  // the first slots are written meanwhile
  for (int64_t step = 1; step <= room; ++step) {
    training.Capture(step);
    CHECK_OK(training.Submit(step));
  }
  training.Capture(room + 1);
  CHECK(training.Submit(room + 1).code() == Code::kTimeout);
  char* base = nullptr;
  CHECK(training.engine()->Reserve(10, &base).code() == Code::kTimeout);
}

void ASlotThatWasCapturedIntoCanBeRescued(const std::string& local) {
  Training training(2, local);
  training.Attach(kLong);
  training.Capture(5);
  CHECK_OK(training.Submit(5));
  CHECK_OK(training.engine()->Wait(5, DF_LOCAL, kLong));
  const SlotStore names(Env::Posix(), local, Identity{}, 1);
  WholeSlot slot;
  CHECK_OK(OpenSlot(Env::Posix(), names.path(0), &slot));
  std::string bytes;
  for (size_t i = 0; i < slot.extents.size(); ++i) {
    std::string extent(slot.extents[i].size, '\0');
    CHECK_OK(ReadFull(slot.file.get(), slot.places[i], extent.data(), extent.size()));
    bytes += extent;
  }
  CHECK_EQ(bytes, training.Expected());
  CHECK_EQ(slot.private_data, std::string("seed-1005-------"));
}

// Checks that the first slot has the checksums of the model file's bytes. RETURNS the slot.
WholeSlot CheckSlotsSums(const std::string& local, const std::string& expected) {
  const SlotStore names(Env::Posix(), local, Identity{}, 1);
  WholeSlot slot;
  CHECK_OK(OpenSlot(Env::Posix(), names.path(0), &slot));
  for (const Extent& extent : slot.extents) {
    CHECK_EQ(extent.crc, Crc32c(0, expected.data() + extent.file_offset, extent.size));
  }
  return slot;
}

// The checksums are those of the tensors, computed by the copy, so bytes that change after it are found by any reader.
// The copy computes them because somebody waits for the local tier.
void TheCopyComputesTheChecksums(const std::string& local) {
  if (!HasOnePass()) return;  // this processor computes them from the memory of the capture, later
  Training training(2, local);
  training.Attach(kLong);
  CHECK(training.engine()->Wait(4, DF_LOCAL, 0).code() == Code::kInvalid);  // there is no such step
  training.Capture(5);
  const uint64_t place = training.place_of_large() + 7;
  char* base = nullptr;
  CHECK_OK(training.engine()->Reserve(kLong, &base));  // the memory of the capture that is not submitted yet
  base[place] = '!';
  CHECK_OK(training.Submit(5));
  CHECK_OK(training.engine()->Wait(5, DF_LOCAL, kLong));
  const WholeSlot slot = CheckSlotsSums(local, training.Expected());
  char found = 0;
  CHECK_OK(ReadFull(slot.file.get(), place, &found, 1));
  CHECK_EQ(found, '!');
}

// An Env by whose clock the process uses no CPU time but what a test says, on so many cores, and a way to let some time
// pass.
class Cores {
 public:
  explicit Cores(CoreCount cores = {2, 2}) {
    env_.on_cpu = [this] { return used_us_.load(); };
    env_.on_cores = [cores] { return cores; };
  }
  Env* env() { return &env_; }
  void Work(uint64_t cores = uint64_t{1} << 24) {
    used_us_ += cores * kPauseMs * 1000;
    Rest();
  }
  void Rest() { env_.SleepMillis(kPauseMs); }

 private:
  static constexpr uint64_t kPauseMs = IdleCores::kShortestUs / 1000 + 1;

  std::atomic<uint64_t> used_us_{0};
  CountEnv env_{Env::Posix()};
};

// While the process leaves a core idle, the engine has the time to compute them after the copy.
void TheCopyComputesNoChecksumsWhereACoreIsIdle(const std::string& local) {
  Cores cores;
  Training training(1, local, cores.env());
  cores.Work();
  CHECK_EQ(training.engine()->SumsInCopy(), HasOnePass());
  cores.Rest();
  CHECK(!training.engine()->SumsInCopy());
  CHECK(training.engine()->Wait(4, DF_LOCAL, 0).code() == Code::kInvalid);  // there is no such step
  cores.Rest();
  CHECK_EQ(training.engine()->SumsInCopy(), HasOnePass());  // somebody waits for the local tier
}

// A rank that keeps the cores busy that it is bound to leaves none idle, however large the machine.
void TheCopyComputesChecksumsWhereOnlyOthersCoresAreIdle() {
  Cores cores({1, 4096});
  Training training(1, "", cores.env());
  cores.Work(1000);  // more than one core, for a pause that takes longer than it should
  CHECK_EQ(training.engine()->SumsInCopy(), HasOnePass());
  cores.Rest();
  CHECK(!training.engine()->SumsInCopy());
}

// A copy without checksums leaves none of the bytes that were there before it, though nobody has submitted them.
void ChecksumsOfOverwrittenBytesAreForgotten(const std::string& local) {
  Cores cores;
  Training training(1, local, cores.env());
  training.Attach(kLong);
  cores.Work();
  training.Capture(5);
  training.AttachAgain();
  cores.Rest();
  training.Capture(6);
  CHECK_OK(training.Submit(6));
  CHECK_OK(training.engine()->Wait(6, DF_LOCAL, kLong));
  CheckSlotsSums(local, training.Expected());
}

// How many of the file's pages in [from, to) are in the page cache.
size_t PagesInCache(const std::string& path, uint64_t from, uint64_t to) {
  const int fd = ::open(path.c_str(), O_RDONLY);
  CHECK(fd >= 0);
  void* mapped = ::mmap(nullptr, to - from, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(from));
  CHECK(mapped != MAP_FAILED);
  std::vector<unsigned char> pages((to - from) / 4096);
  CHECK(::mincore(mapped, to - from, pages.data()) == 0);
  ::munmap(mapped, to - from);
  ::close(fd);
  return static_cast<size_t>(
      std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; }));
}

void ASlotOnADiskIsWrittenPastThePageCache(const std::string& local) {
  std::unique_ptr<File> file;
  if (Env::Posix()->InMemory(local) || !Env::Posix()->Open(local + "/probe", OpenMode::kDirect, &file).ok()) return;
  Training training(2, local);
  training.Attach(kLong);
  for (const int64_t step : {5, 6}) {
    training.Capture(step);
    CHECK_OK(training.Submit(step));
    CHECK_OK(training.engine()->Wait(step, DF_LOCAL, kLong));
    const SlotStore names(Env::Posix(), local, Identity{}, 2);
    const std::string path = names.path(static_cast<uint32_t>(step - 5));
    const uint64_t place = training.place_of_large();
    const uint64_t small = place + kLarge / kSmallExtent * kSmallExtent;  // the large tensor's last extent
    CHECK_EQ(PagesInCache(path, place, small), 0U);
    CHECK(PagesInCache(path, small, small + 4096) == 1);
  }
}

// What is captured again, also at other borders, has no checksum of before.
void SumsOfChangedBytesAreForgotten() {
  const std::string bytes(100, 'x');
  const char* at = bytes.data();
  Job job;
  for (const uint64_t offset : {0, 10, 20, 30}) {
    job.extents.push_back(Extent{offset, 10, 0});
    job.sources.push_back(at + offset);
  }
  job.extents.push_back(Extent{40, 5, 0});  // of another size than what is noted there
  job.sources.push_back(at + 40);
  job.summed.resize(job.extents.size());
  CapturedSums sums;
  sums.Note({{at, 10, 1}, {at + 10, 10, 2}, {at + 20, 10, 3}, {at + 30, 10, 4}, {at + 40, 10, 5}});
  sums.Forget(at + 19, 2);  // touches the second and the third
  sums.Forget(at + 30, 10);
  sums.Note({{at + 30, 10, 6}});
  sums.GiveTo(&job);
  CHECK((job.summed == std::vector<bool>{true, false, false, true, false}));
  CHECK_EQ(job.extents[0].crc, 1u);
  CHECK_EQ(job.extents[3].crc, 6u);
  job.summed.assign(job.extents.size(), false);
  sums.GiveTo(&job);  // the next capture begins without any
  CHECK((job.summed == std::vector<bool>(5)));
}

void RegionsThatWereNotPlannedAreRefused(const std::string& local) {
  Training training(1, local);
  training.Attach(kLong);
  training.Capture(1);
  char* base = nullptr;
  auto owner = CaptureArea::Owner::kArea;
  CHECK_OK(training.area()->Collect(&base, &owner));
  CHECK(owner == CaptureArea::Owner::kEngine);
  CHECK(training.engine()->Submit(1, {{base, 10, 0}}, "", kLong).code() == Code::kInvalid);
}

void AnAreaIsFoundUntilItIsForgotten() {
  const uint64_t number = CaptureArea::Register(std::make_shared<CaptureArea>(Env::Posix()));
  std::shared_ptr<CaptureArea> area;
  CHECK_OK(CaptureArea::Find("test", number, &area));
  CHECK(area->Capture(0, {}).code() == Code::kInvalid);
  CaptureArea::Forget(number);
  CHECK_OK(CaptureArea::Find("test", number, &area));
  CHECK(area == nullptr);
}

// The graph goes on running after the engine is closed.
void WithoutItsEngineACaptureIsLostAndNothingElse() {
  Training training(1, "");
  training.Attach(kLong);
  std::shared_ptr<CaptureArea> area = std::make_shared<CaptureArea>(Env::Posix());
  {
    Training other(1, "");
    other.Attach(kLong);
    CHECK_OK(area->SetGroup(0, {{0, 0, 8, 0}}));
    Options options;
    options.identity.file_size = 8;
    options.run_dir = "/";
    area->Attach(std::make_shared<Engine>(options, Env::Posix()), kLong);
  }
  CHECK_OK(area->Capture(0, {{"01234567", 8}}));
  char* base = nullptr;
  auto owner = CaptureArea::Owner::kEngine;
  CHECK(area->Collect(&base, &owner).code() == Code::kClosed);
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  const TemporaryDir disk;
  const TemporaryDir memory("/dev/shm");
  for (const std::string& local : {std::string(), disk.path(), memory.path()}) WhatIsCapturedIsCommitted(local);
  for (const std::string& local : {disk.path(), memory.path()}) {
    ASlotThatWasCapturedIntoCanBeRescued(local);
    RegionsThatWereNotPlannedAreRefused(local);
    TheCopyComputesTheChecksums(local);
    TheCopyComputesNoChecksumsWhereACoreIsIdle(local);
    ChecksumsOfOverwrittenBytesAreForgotten(local);
  }
  ASlotOnADiskIsWrittenPastThePageCache(disk.path());
  SumsOfChangedBytesAreForgotten();
  TheCopyComputesChecksumsWhereOnlyOthersCoresAreIdle();
  ACaptureWithoutMemoryIsToldAndDoesNotFailTheGraph(memory.path(), 2);  // the slots
  ACaptureWithoutMemoryIsToldAndDoesNotFailTheGraph(disk.path(), 4);    // the slots, and what is in flight
  AnAreaIsFoundUntilItIsForgotten();
  WithoutItsEngineACaptureIsLostAndNothingElse();
}
