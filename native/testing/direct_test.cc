// Two writers whose direct writes are refused at the same time both go on with ordinary ones. The C library's pwrite is
// replaced by one that refuses the first write of each, when both are under way.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <string>
#include <thread>

#include "testing/check.h"

namespace {

constexpr int kWriters = 2;
std::atomic<int> refused{0};

}  // namespace

extern "C" ssize_t pwrite(int fd, const void* data, size_t n, off_t offset) {
  if (refused.fetch_add(1) < kWriters) {
    while (refused.load() < kWriters) std::this_thread::yield();
    errno = EINVAL;
    return -1;
  }
  return syscall(SYS_pwrite64, fd, data, n, offset);
}

int main() {
  using namespace deepfreeze;
  TemporaryDir directory;
  std::unique_ptr<File> file;
  if (!Env::Posix()->Open(directory.path() + "/file", OpenMode::kDirect, &file).ok()) {
    std::printf("this file system opens no file for direct writing: nothing to test\n");
    return 0;
  }
  std::thread writers[kWriters];
  for (int i = 0; i < kWriters; ++i) {
    writers[i] = std::thread([&file, i] { CHECK_OK(WriteFull(file.get(), 2 * static_cast<uint64_t>(i), "ab", 2)); });
  }
  for (std::thread& writer : writers) writer.join();
  CHECK(refused.load() == 2 * kWriters);
  char text[2 * kWriters];
  CHECK_OK(Env::Posix()->Open(directory.path() + "/file", OpenMode::kRead, &file));
  CHECK_OK(ReadFull(file.get(), 0, text, sizeof(text)));
  CHECK_EQ(std::string(text, sizeof(text)), "abab");
}
