// A forked child has none of the engine's memory. Pages that parent and child share would be copied, one by one, at the
// parent's next write to them, and a disk that reads such a page meanwhile might read either copy.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/checksum.h"
#include "testing/check.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kSize = uint64_t{16} << 20;
constexpr size_t kPage = 4096;

bool Mapped(char* data) {
  unsigned char resident;
  return mincore(data, kPage, &resident) == 0;
}

// Runs `body` in a child; its result is the child's exit status.
template <typename Body>
int InAChild(Body body) {
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) _exit(body());
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

void AChildHasNoneOfIt(char* data) {
  CHECK(reinterpret_cast<uintptr_t>(data) % kDirectUnit == 0);
  CHECK(Mapped(data));
  CHECK_EQ(InAChild([data] { return Mapped(data) ? 1 : 0; }), 0);
}

long Faults() {
  rusage usage;
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  return usage.ru_minflt;
}

// While a child lives.
void WritingToItFindsNoFreshPages(char* data) {
  std::memset(data, 1, kSize);
  int ends[2];
  CHECK(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    char end;
    _exit(static_cast<int>(read(ends[0], &end, 1)));
  }
  const long before = Faults();
  std::memset(data, 2, kSize);
  const long faults = Faults() - before;
  close(ends[0]);
  close(ends[1]);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(faults < static_cast<long>(kSize / kPage / 8));
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  Env* env = Env::Posix();
  char* pages = env->AllocatePages(kSize);
  CHECK(pages != nullptr);
  WritingToItFindsNoFreshPages(pages);
  AChildHasNoneOfIt(pages);
  env->FreePages(pages, kSize);

  TemporaryDir memory("/dev/shm");
  std::unique_ptr<File> slot;
  char* mapped = nullptr;
  CHECK_OK(env->Open(memory.path() + "/slot", OpenMode::kPrivate, &slot));
  CHECK_OK(slot->Map(kSize, &mapped));
  AChildHasNoneOfIt(mapped);

  Block block(env, kSize);
  AChildHasNoneOfIt(block.data());
}
