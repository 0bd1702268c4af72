// The memory of captures is touched beforehand, in pieces: no other thread waits for the whole, and a stop ends it
// between two pieces.
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>

#include "engine/engine.h"
#include "format/names.h"
#include "local/slot_store.h"
#include "testing/check.h"
#include "testing/count_env.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kPieces = 8;
constexpr uint64_t kSize = kPieces * kPopulatePiece;

// Holds up a thread at its n-th piece until it is opened.
class Gate {
 public:
  explicit Gate(CountEnv* env, uint64_t nth) {
    env->on_populate = [this, nth](uint64_t n) {
      std::unique_lock<std::mutex> lock(mutex_);
      there_ = there_ || n == nth;
      changed_.notify_all();
      changed_.wait(lock, [&] { return n != nth || open_; });
      return Status();
    };
  }
  void AwaitThread() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return there_; });
  }
  void Open() {
    std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool there_ = false;
  bool open_ = false;
};

void MemoryIsTouchedInPiecesOfAHugePageAtMost() {
  CountEnv env(Env::Posix());
  const std::shared_ptr<Pages> pages = Pages::Allocate(&env, kSize + 5);
  CHECK(pages != nullptr && env.largest <= kPopulatePiece);
  CHECK(env.populates >= kPieces && env.populates <= kPieces + 2);  // they end where huge pages do
  std::memset(pages->data(), 1, kSize + 5);
}

void AStopEndsItBetweenTwoPieces() {
  CountEnv env(Env::Posix());
  const auto stop = [&] { return env.populates == 3; };
  CHECK(Pages::Allocate(&env, kSize, stop) == nullptr && env.populates == 3);
  TemporaryDir local("/dev/shm");
  CountEnv other(Env::Posix());
  SlotStore store(&other, local.path(), Identity{}, 1);
  CHECK_EQ(store.Touch(0, kSize, [&] { return other.populates == 3; }).code(), Code::kClosed);
  CHECK_EQ(other.populates, 3U);
  // The next call goes on from there.
  char* data = nullptr;
  CHECK_OK(store.Map(0, kSize, {}, &data));
  CHECK(other.populates >= kPieces && other.populates <= kPieces + 3);
  std::memset(data, 1, kSize);
}

void NoMemoryIsNoBufferAndOtherErrorsAreNone() {
  for (const int error : {ENOMEM, EINVAL}) {
    CountEnv env(Env::Posix());
    env.on_populate = [&](uint64_t) { return Status::FromErrno(error, "madvise", "memory"); };
    CHECK_EQ(Pages::Allocate(&env, kSize) == nullptr, error == ENOMEM);
    CHECK_EQ(env.populates, 1U);
    TemporaryDir local("/dev/shm");
    SlotStore store(&env, local.path(), Identity{}, 1);
    char* data = nullptr;
    CHECK_OK(store.Map(0, kSize, {}, &data));  // the file finds its memory itself
    std::memset(data, 1, kSize);
    CHECK_OK(store.Map(0, kSize, {}, &data));
    CHECK_EQ(env.populates, 2U);
  }
}

// Bytes of this process's mappings of files in memory that are in huge pages.
uint64_t InHugePages() {
  std::ifstream maps("/proc/self/smaps");
  uint64_t kib = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.rfind("ShmemPmdMapped:", 0) == 0) kib += std::stoull(line.substr(line.find(':') + 1));
  }
  return kib * 1024;
}

// Without any mount option, where the system can do that (Linux 6.1).
void SlotsInMemoryAreInHugePages() {
  TemporaryDir local("/dev/shm");
  CountEnv env(Env::Posix());
  SlotStore store(&env, local.path(), Identity{}, 1);
  char* data = nullptr;
  CHECK_OK(store.Map(0, kSize + 4096, {}, &data));
  CHECK_EQ(env.joins, 1U);
  CHECK(reinterpret_cast<uintptr_t>(data) % kHugePage == 0);
  if (store.WantsHugePages()) return;  // the system can't
  CHECK_EQ(InHugePages(), kSize);
  std::memset(data + kSlotHeaderSize, 1, kSize + 4096 - kSlotHeaderSize);
}

// The system never makes huge pages (tried once, and told of once), or has none at present (tried again, not told of).
void WhereTheSystemMakesNoHugePagesSmallOnesDo() {
  for (const bool never : {true, false}) {
    TemporaryDir local("/dev/shm");
    CountEnv env(Env::Posix());
    env.on_join = [&] {
      return never ? Status(Code::kInvalid, "never") : Status::FromErrno(ENOMEM, "madvise", "memory");
    };
    SlotStore store(&env, local.path(), Identity{}, 2);
    for (const uint32_t slot : {0, 1}) {
      char* data = nullptr;
      CHECK_OK(store.Map(slot, kSize, {}, &data));
      std::memset(data, 1, kSize);
    }
    FileInfo info;
    CHECK_OK(env.Stat(store.path(0), &info));
    CHECK_EQ(store.WantsHugePages(), never && info.block < kHugePage);
    CHECK_EQ(env.joins, never ? 1U : 2U);
    CHECK(env.largest <= kPopulatePiece);
  }
}

void ASlotThatIsReadyDoesNotWaitForAnother() {
  TemporaryDir local("/dev/shm");
  CountEnv env(Env::Posix());
  SlotStore store(&env, local.path(), Identity{}, 3);
  CHECK_OK(store.Touch(0, kSize, {}));
  Gate gate(&env, env.populates + 2);
  std::thread toucher([&] { CHECK_OK(store.Touch(1, kSize, {})); });
  gate.AwaitThread();
  char* data = nullptr;
  CHECK_OK(store.Map(0, kSize, {}, &data));
  CHECK_OK(store.Begin(2, kPopulatePiece));
  CHECK_OK(WriteFull(store.file(2), 0, "slot", 4));
  store.Remove(2);
  gate.Open();
  toucher.join();
}

Options ForOneRank(const std::string& run, const std::string& local) {
  Options options;
  options.identity.file_size = kSize;
  options.in_flight = 2;
  options.slots = 2;
  options.chunk_bytes = kPopulatePiece;
  options.commit_timeout_ms = kLong;
  options.run_dir = run;
  options.local_dir = local;
  return options;
}

// Not where a mount option gives huge pages: then the test would wait for ever, and is left out.
void SmallPagesAreToldOfOnce() {
  TemporaryDir run;
  TemporaryDir local("/dev/shm");
  std::unique_ptr<File> file;
  FileInfo info;
  CHECK_OK(Env::Posix()->Open(Join(local.path(), "file"), OpenMode::kNew, &file));
  CHECK_OK(Env::Posix()->Stat(file->path(), &info));
  if (info.block >= kHugePage) return;
  CountEnv env(Env::Posix());
  env.on_join = [] { return Status(Code::kInvalid, "never"); };
  Engine engine(ForOneRank(run.path(), local.path()), &env);
  CapturePlan plan;
  CHECK_OK(engine.Plan({{nullptr, kSize, 0}}, 0, 0, &plan));
  size_t told = 0;
  const auto poll = [&] {
    for (const Report& report : engine.Poll(10)) {
      told += report.message.find("huge=within_size") != std::string::npos ? 1 : 0;
    }
  };
  while (told == 0) poll();
  char* base = nullptr;
  CHECK_OK(engine.Reserve(kLong, &base));
  std::string where;
  CHECK(engine.Stop(kLong, &where));
  poll();
  CHECK_EQ(told, 1U);
}

// In the slots of a local tier in memory, and in pages of the process.
void ACaptureDoesNotWaitForTheMemoryOfTheNext() {
  for (const bool slots : {true, false}) {
    TemporaryDir run;
    TemporaryDir local("/dev/shm");
    CountEnv env(Env::Posix());
    Gate gate(&env, kPieces + 5);  // of the second buffer
    Engine engine(ForOneRank(run.path(), slots ? local.path() : ""), &env);
    CapturePlan plan;
    CHECK_OK(engine.Plan({{nullptr, kSize, 0}}, 0, 0, &plan));
    gate.AwaitThread();
    char* base = nullptr;
    CHECK_OK(engine.Reserve(kLong, &base));
    std::memset(base + plan.places[0], 'd', kSize);
    gate.Open();
  }
}

void ClosingTheEngineEndsItBetweenTwoPieces() {
  for (const bool slots : {true, false}) {
    TemporaryDir run;
    TemporaryDir local("/dev/shm");
    CountEnv env(Env::Posix());
    Gate gate(&env, 3);
    Engine engine(ForOneRank(run.path(), slots ? local.path() : ""), &env);
    CapturePlan plan;
    CHECK_OK(engine.Plan({{nullptr, kSize, 0}}, 0, 0, &plan));
    gate.AwaitThread();
    std::thread closer([&] {
      std::string where;
      CHECK(engine.Stop(kLong, &where));
    });
    while (engine.Submit(1, {}, "", 0).code() != Code::kClosed) std::this_thread::yield();
    gate.Open();
    closer.join();
    CHECK_EQ(env.populates, 3U);
  }
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::MemoryIsTouchedInPiecesOfAHugePageAtMost();
  deepfreeze::AStopEndsItBetweenTwoPieces();
  deepfreeze::NoMemoryIsNoBufferAndOtherErrorsAreNone();
  deepfreeze::SlotsInMemoryAreInHugePages();
  deepfreeze::WhereTheSystemMakesNoHugePagesSmallOnesDo();
  deepfreeze::SmallPagesAreToldOfOnce();
  deepfreeze::ASlotThatIsReadyDoesNotWaitForAnother();
  deepfreeze::ACaptureDoesNotWaitForTheMemoryOfTheNext();
  deepfreeze::ClosingTheEngineEndsItBetweenTwoPieces();
}
