// Calls that a signal interrupts are made again. The system rarely does that to files, so here the C library's
// functions are replaced by ones that are interrupted twice before they do anything.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <string>

#include "testing/check.h"

namespace {

std::map<std::string, int>& Calls() {
  static auto* calls = new std::map<std::string, int>;
  return *calls;
}

// Whether this call of that function is one that is interrupted.
bool Interrupt(const char* name) {
  if (++Calls()[name] % 3 == 0) return false;
  errno = EINTR;
  return true;
}

// The C library's own.
template <typename Function>
Function Real(Function, const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

#define INTERRUPTED(function, failure, ...) Interrupt(#function) ? failure : Real(&function, #function)(__VA_ARGS__)

extern "C" {
int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  return INTERRUPTED(open, -1, path, flags, mode);
}
ssize_t pwrite(int fd, const void* data, size_t n, off_t at) { return INTERRUPTED(pwrite, -1, fd, data, n, at); }
ssize_t pread(int fd, void* data, size_t n, off_t at) { return INTERRUPTED(pread, -1, fd, data, n, at); }
int fsync(int fd) { return INTERRUPTED(fsync, -1, fd); }
int fdatasync(int fd) { return INTERRUPTED(fdatasync, -1, fd); }
int ftruncate(int fd, off_t size) noexcept { return INTERRUPTED(ftruncate, -1, fd, size); }
int fallocate(int fd, int mode, off_t at, off_t n) { return INTERRUPTED(fallocate, -1, fd, mode, at, n); }
int fchmod(int fd, mode_t mode) noexcept { return INTERRUPTED(fchmod, -1, fd, mode); }
int fstat(int fd, struct stat* info) noexcept { return INTERRUPTED(fstat, -1, fd, info); }
int lstat(const char* path, struct stat* info) noexcept { return INTERRUPTED(lstat, -1, path, info); }
int statfs(const char* path, struct statfs* info) noexcept { return INTERRUPTED(statfs, -1, path, info); }
int rename(const char* from, const char* to) noexcept { return INTERRUPTED(rename, -1, from, to); }
int mkdir(const char* path, mode_t mode) noexcept { return INTERRUPTED(mkdir, -1, path, mode); }
int unlink(const char* path) noexcept { return INTERRUPTED(unlink, -1, path); }
int rmdir(const char* path) noexcept { return INTERRUPTED(rmdir, -1, path); }
DIR* opendir(const char* path) { return INTERRUPTED(opendir, nullptr, path); }
struct dirent* readdir(DIR* directory) { return INTERRUPTED(readdir, nullptr, directory); }
}

int main() {
  using namespace deepfreeze;
  TemporaryDir directory;
  std::unique_ptr<File> file;
  Env* env = Env::Posix();
  const std::string path = directory.path() + "/file";
  CHECK_OK(env->Open(path, OpenMode::kPrivate, &file));
  CHECK_OK(file->Truncate(100));
  CHECK_OK(file->Allocate(100));
  CHECK_OK(WriteFull(file.get(), 10, "text", 4));
  CHECK_OK(file->DataSync());
  CHECK_OK(file->Sync());
  CHECK_OK(env->SyncDir(directory.path()));
  char text[4];
  CHECK_OK(ReadFull(file.get(), 10, text, 4));
  CHECK_EQ(std::string(text, 4), "text");
  CHECK_EQ(::chmod(path.c_str(), 0644), 0);
  CHECK_OK(env->Open(path, OpenMode::kPrivate, &file));

  CHECK_OK(env->MakeDir(directory.path() + "/made", 0755));
  CHECK_OK(env->Rename(path, directory.path() + "/made/file"));
  FileInfo info;
  CHECK_OK(env->Stat(directory.path() + "/made/file", &info));
  CHECK(info.exists && info.size == 100);
  std::vector<std::string> names;
  bool exists = false;
  CHECK_OK(env->List(directory.path() + "/made", &names, &exists));
  CHECK(exists && names == std::vector<std::string>{"file"});
  CHECK_OK(env->Unlink(directory.path() + "/made/file"));
  CHECK_OK(env->RemoveDir(directory.path() + "/made"));
  CHECK(!env->InMemory("/") && env->InMemory("/dev/shm"));

  CHECK_EQ(Calls().size(), 17U);
  for (const auto& [name, calls] : Calls()) {
    if (calls < 3 || calls % 3 != 0) std::fprintf(stderr, "%s: %d calls\n", name.c_str(), calls);
    CHECK(calls >= 3 && calls % 3 == 0);
  }
}
