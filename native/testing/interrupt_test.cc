// Calls that a signal interrupts are made again. The system rarely does that to files, so here the C library's
// functions are replaced by ones that are interrupted twice before they do anything.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "testing/check.h"

namespace {

int interrupted = 0;

bool Interrupt() {
  static int calls = 0;
  if (++calls % 3 == 0) return false;
  ++interrupted;
  errno = EINTR;
  return true;
}

}  // namespace

extern "C" {
ssize_t pwrite(int fd, const void* data, size_t n, off_t offset) {
  return Interrupt() ? -1 : syscall(SYS_pwrite64, fd, data, n, offset);
}
ssize_t pread(int fd, void* data, size_t n, off_t offset) {
  return Interrupt() ? -1 : syscall(SYS_pread64, fd, data, n, offset);
}
int fsync(int fd) { return Interrupt() ? -1 : static_cast<int>(syscall(SYS_fsync, fd)); }
int fdatasync(int fd) { return Interrupt() ? -1 : static_cast<int>(syscall(SYS_fdatasync, fd)); }
int ftruncate(int fd, off_t size) noexcept {
  return Interrupt() ? -1 : static_cast<int>(syscall(SYS_ftruncate, fd, size));
}
}

int main() {
  using namespace deepfreeze;
  TemporaryDir directory;
  std::unique_ptr<File> file;
  Env* env = Env::Posix();
  CHECK_OK(env->Open(directory.path() + "/file", OpenMode::kUpdate, &file));
  CHECK_OK(file->Truncate(100));
  CHECK_OK(WriteFull(file.get(), 10, "text", 4));
  CHECK_OK(file->DataSync());
  CHECK_OK(file->Sync());
  CHECK_OK(env->SyncDir(directory.path()));
  char text[4];
  CHECK_OK(ReadFull(file.get(), 10, text, 4));
  CHECK_EQ(std::string(text, 4), "text");
  CHECK_EQ(interrupted, 12);
}
