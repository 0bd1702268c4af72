// Memory runs out at any allocation on any thread of the engine, once or for good. No exception leaves a thread, every
// wait returns, and when there is memory again the next checkpoint is committed.
#include <pthread.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <new>

#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "format/names.h"
#include "testing/check.h"
#include "testing/fault_env.h"
#include "testing/faults_of.h"
#include "testing/points.h"

namespace {

std::atomic<bool> armed{false};
std::atomic<bool> for_good{false};
std::atomic<int64_t> allocations{0};
std::atomic<int64_t> fails_at{0};

bool OnAnEngineThread() {
  char name[16];
  return pthread_getname_np(pthread_self(), name, sizeof(name)) == 0 && std::strncmp(name, "df-", 3) == 0;
}

bool Fails() {
  if (!armed || !OnAnEngineThread()) return false;
  const int64_t n = ++allocations;
  return n == fails_at || (for_good && n > fails_at);
}

}  // namespace

void* operator new(size_t n) {
  void* data = Fails() ? nullptr : std::malloc(n > 0 ? n : 1);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, size_t) noexcept { std::free(data); }

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kBound = 300;
constexpr uint64_t kSize = 6 * 4096 + 17;
constexpr int64_t kSteps = 3;
// The points of the sweep that are due; made when it is first asked for, because reading the environment may throw.
const Points& DuePoints() {
  static const Points points;
  return points;
}

struct Shape {
  const char* name;
  const char* faults;  // what goes wrong besides
  bool captured;       // in slots in memory; else handed over
};

constexpr Shape kShapes[] = {{"handed over", "", false},
                             {"captured", "", true},
                             {"a full local tier", "fail=ENOSPC:pwrite:.slot:1+", false},
                             {"a failed step", "fail=EIO:fdatasync:model:1", false},
                             {"a failed removal", "fail=EACCES:rename:.trash:1", false}};

// The number of descriptors that this process has open.
size_t Descriptors() {
  std::vector<std::string> names;
  bool exists = false;
  CHECK_OK(Env::Posix()->List("/proc/self/fd", &names, &exists));
  return names.size();
}

// Whether the job came to that allocation.
bool Run(const Shape& shape, int64_t nth, bool good) {
  TemporaryDir run("/dev/shm");
  TemporaryDir local("/dev/shm");
  FaultEnv env(Env::Posix(), FaultsOf(shape.faults), "");
  Options options;
  options.identity.file_size = kSize;
  options.in_flight = 2;
  options.slots = 2;
  options.writers = 2;
  options.chunk_bytes = uint64_t{4} * 4096;
  // Where no memory comes back rank 0 can't see what became of its rename, and looks until the bound.
  options.commit_timeout_ms = good ? kBound : kLong;
  options.run_dir = run.path();
  options.local_dir = local.path();
  const std::string data(kSize, 'd');
  allocations = 0;
  fails_at = nth;
  for_good = good;
  Engine engine(options, &env);
  armed = true;
  CapturePlan plan;
  if (shape.captured) CHECK_OK(engine.Plan({{nullptr, kSize, 0}}, 1, 0, &plan));
  const auto submit = [&](int64_t step) {
    Region region{data.data(), kSize, 0};
    if (shape.captured) {
      char* base = nullptr;
      CHECK_OK(engine.Reserve(kLong, &base));
      CHECK_OK(engine.AwaitParts(base, engine.CaptureSize(), kLong));
      std::memcpy(base + plan.places[0], data.data(), kSize);
      region.data = base + plan.places[0];
    }
    CHECK_OK(engine.Submit(step, {region}, "p", kLong));
    const Status status = engine.Wait(step, DF_EXTERNAL, kLong);
    CHECK(status.code() != Code::kTimeout);
    return status;
  };
  for (int64_t step = 1; step <= kSteps; ++step) (void)submit(step).ok();
  armed = false;
  env.Heal();
  // A busy machine may need longer than so short a bound.
  for (int64_t step = kSteps + 1; !submit(step).ok(); ++step) CHECK(good && step < kSteps + 20);
  CHECK_OK(engine.Drain(kLong));
  return allocations >= nth;
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // where it was, if it is ended from outside
  for (const Shape& shape : kShapes) {
    for (const bool good : {false, true}) {
      int points = 0;
      const int64_t stride = good ? 7 : 1;
      const auto first = static_cast<int64_t>(DuePoints().first);
      const auto every = static_cast<int64_t>(DuePoints().every);
      const size_t before = Descriptors();
      for (int64_t nth = 1 + first * stride; Run(shape, nth, good); nth += every * stride) ++points;
      CHECK(points >= static_cast<int>(DuePoints().AtLeast(20)));
      CHECK_EQ(Descriptors(), before);
      std::printf("no memory%s, %s: %d allocations\n", good ? " from there on" : "", shape.name, points);
    }
  }
}
