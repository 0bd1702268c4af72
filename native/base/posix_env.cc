#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#ifdef __linux__
#include <sched.h>
#include <sys/vfs.h>
#endif

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <thread>

#include "base/env.h"

namespace deepfreeze {
namespace {

bool Failed(ssize_t result) { return result == -1; }
bool Failed(const void* result) { return result == nullptr; }

// Repeats a call that a signal has interrupted: it has done nothing.
template <typename Call>
auto Retry(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (Failed(result) && errno == EINTR);
  return result;
}

struct Closer {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

#ifdef __linux__
struct SetFreer {
  void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
#endif

Status Result(int result, const char* operation, const std::string& path) {
  return result == 0 ? Status() : Status::FromErrno(errno, operation, path);
}

// Keeps the memory from forked children, and asks for huge pages.
void Advise(char* data, uint64_t size) {
#ifdef MADV_DONTFORK
  ::madvise(data, size, MADV_DONTFORK);
#endif
#ifdef MADV_HUGEPAGE
  ::madvise(data, size, MADV_HUGEPAGE);
#endif
}

// How many cores the calling thread may run on; 0 if the system does not say.
uint32_t BoundCores() {
#ifdef __linux__
  // The call refuses a set that is smaller than the kernel's, which has room for cores that the machine does not have.
  constexpr size_t kMostCores = size_t{1} << 20;
  for (size_t cores = CPU_SETSIZE; cores <= kMostCores; cores *= 2) {
    const std::unique_ptr<cpu_set_t, SetFreer> set(CPU_ALLOC(cores));
    if (set == nullptr) return 0;
    const size_t size = CPU_ALLOC_SIZE(cores);
    if (::sched_getaffinity(0, size, set.get()) == 0) return static_cast<uint32_t>(CPU_COUNT_S(size, set.get()));
    if (errno != EINVAL) return 0;
  }
#endif
  return 0;
}

// Maps the file where a huge page begins: parts of a mapping become huge pages only at such addresses.
void* MapAligned(int fd, uint64_t size) {
  constexpr int kProtection = PROT_READ | PROT_WRITE;
  // Room for the mapping and for what is before the first huge page.
  void* room = size < kHugePage
                   ? MAP_FAILED
                   : ::mmap(nullptr, size + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return ::mmap(nullptr, size, kProtection, MAP_SHARED, fd, 0);
  const auto begin = reinterpret_cast<uintptr_t>(room);
  const uint64_t before = (kHugePage - begin % kHugePage) % kHugePage;
  const uint64_t page = static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  const uint64_t whole = (size + page - 1) / page * page;
  char* const data = static_cast<char*>(room) + before;
  void* mapped = ::mmap(data, size, kProtection, MAP_SHARED | MAP_FIXED, fd, 0);
  const int error = errno;
  if (mapped == MAP_FAILED) {
    ::munmap(room, size + kHugePage);
  } else {
    if (before > 0) ::munmap(room, before);
    const uint64_t used = before + whole;
    const uint64_t all = (size + kHugePage + page - 1) / page * page;
    if (used < all) ::munmap(data + whole, all - used);
  }
  errno = error;
  return mapped;
}

// No file or directory is writable for everybody, also with a umask of 000, with which batch systems and containers
// start jobs: nobody could trust such a checkpoint. All else is left to the umask.
constexpr mode_t kFileMode = 0664, kNotForAll = ~mode_t{S_IWOTH};
constexpr mode_t kPrivateMode = 0600;

// Checks what OpenMode::kPrivate promises of a regular file.
Status CheckPrivate(int fd, const std::string& path) {
  struct stat info;
  DF_RETURN_IF_ERROR(Result(Retry([&] { return ::fstat(fd, &info); }), "fstat", path));
  if (info.st_uid != ::geteuid() || info.st_nlink != 1) {
    return Status::FourPart(Code::kIo, path, "a file of user " + std::to_string(::geteuid()) + " with this one name",
                            "one of user " + std::to_string(info.st_uid) + " with " + std::to_string(info.st_nlink),
                            "Remove it, or choose another local directory");
  }
  if ((info.st_mode & 07777) == kPrivateMode) return {};
  return Result(Retry([&] { return ::fchmod(fd, kPrivateMode); }), "fchmod", path);
}

// Refuses anything but a regular file: a device or a FIFO has no size, and may never end. Where the file is written,
// refuses one that has another name too.
Status CheckRegular(int fd, const std::string& path, OpenMode mode) {
  struct stat info;
  DF_RETURN_IF_ERROR(Result(Retry([&] { return ::fstat(fd, &info); }), "fstat", path));
  if (S_ISREG(info.st_mode)) {
    const bool checked = mode == OpenMode::kRead || mode == OpenMode::kPrivate;  // CheckPrivate has its own message
    if (checked || info.st_nlink <= 1) return {};
    return Status::FourPart(Code::kIo, path, "a file with this one name",
                            "one with " + std::to_string(info.st_nlink) + " names",
                            "Remove this name, and find out who made it; nothing was written");
  }
  return Status::FourPart(mode == OpenMode::kRead ? Code::kCorrupt : Code::kIo, path, "a file",
                          S_ISDIR(info.st_mode) ? "a directory" : "a pipe, a device or a socket",
                          "Remove it; this library did not make it");
}

class PosixFile final : public File {
 public:
  PosixFile(std::string path, bool direct) : File(std::move(path)), direct_(direct) {}
  // From now on this object owns the descriptor, and closes it.
  void Own(int fd) { fd_ = fd; }
  ~PosixFile() override {
    if (mapped_ != nullptr) ::munmap(mapped_, mapped_size_);
    if (fd_ >= 0) ::close(fd_);
  }

  Status PRead(uint64_t offset, void* data, size_t n, size_t* done) override {
    const ssize_t got = Retry([&] { return ::pread(fd_, data, n, static_cast<off_t>(offset)); });
    if (got < 0) return Status::FromErrno(errno, "pread", path());
    *done = static_cast<size_t>(got);
    return {};
  }

  Status PWrite(uint64_t offset, const void* data, size_t n, size_t* done) override {
    const auto write = [&] { return ::pwrite(fd_, data, n, static_cast<off_t>(offset)); };
    ssize_t put = Retry(write);
    // The file system refuses this direct write, perhaps because an earlier write was cut short at an odd length.
    if (put < 0 && errno == EINVAL && LeaveDirect()) put = Retry(write);
    if (put < 0) return Status::FromErrno(errno, "pwrite", path());
    *done = static_cast<size_t>(put);
    return {};
  }

  bool Direct() const override { return direct_ && !left_direct_; }

  Status Number(uint64_t* number) override {
    struct stat info;
    DF_RETURN_IF_ERROR(Result(Retry([&] { return ::fstat(fd_, &info); }), "fstat", path()));
    *number = static_cast<uint64_t>(info.st_ino);
    return {};
  }

  Status Size(uint64_t* size) override {
    struct stat info;
    DF_RETURN_IF_ERROR(Result(Retry([&] { return ::fstat(fd_, &info); }), "fstat", path()));
    *size = static_cast<uint64_t>(info.st_size);
    return {};
  }

  Status Truncate(uint64_t size) override {
    return Result(Retry([&] { return ::ftruncate(fd_, static_cast<off_t>(size)); }), "ftruncate", path());
  }

  Status Allocate(uint64_t size) override {
#ifdef __linux__
    if (Retry([&] { return ::fallocate(fd_, 0, 0, static_cast<off_t>(size)); }) == 0) return {};
    if (errno != EOPNOTSUPP && errno != ENOSYS) return Status::FromErrno(errno, "fallocate", path());
#endif
    uint64_t now = 0;
    DF_RETURN_IF_ERROR(Size(&now));
    return now < size ? Truncate(size) : Status();
  }

  Status DataSync() override {
    return Result(Retry([&] { return ::fdatasync(fd_); }), "fdatasync", path());
  }

  Status Sync() override {
    return Result(Retry([&] { return ::fsync(fd_); }), "fsync", path());
  }

  Status Map(uint64_t size, char** data) override {
    uint64_t now = 0;
    DF_RETURN_IF_ERROR(Size(&now));
    if (now < size) DF_RETURN_IF_ERROR(Truncate(size));
    void* mapped = MapAligned(fd_, size);
    if (mapped == MAP_FAILED) return Status::FromErrno(errno, "mmap", path());
    mapped_ = static_cast<char*>(mapped);
    mapped_size_ = size;
    *data = mapped_;
    Advise(mapped_, size);
    return {};
  }

  void StartWriteback([[maybe_unused]] uint64_t offset, [[maybe_unused]] uint64_t n) override {
#ifdef __linux__
    ::sync_file_range(fd_, static_cast<off_t>(offset), static_cast<off_t>(n), SYNC_FILE_RANGE_WRITE);
#endif
  }

  Status Close() override {
    const int fd = fd_;
    fd_ = -1;  // Linux has closed the descriptor even when close() fails
    return Result(::close(fd), "close", path());
  }

 private:
  // Changes the file to ordinary writes. Returns whether a refused write may succeed when it is repeated: also true if
  // another of the threads that share the file has made the change since this write began.
  bool LeaveDirect() {
    if (!direct_) return false;
#ifdef __linux__
    left_direct_ = true;
    const int flags = ::fcntl(fd_, F_GETFL);
    return flags >= 0 && ::fcntl(fd_, F_SETFL, flags & ~O_DIRECT) == 0;
#else
    return false;
#endif
  }

  int fd_ = -1;
  const bool direct_;  // whether the file was opened for direct writes
  std::atomic<bool> left_direct_{false};
  char* mapped_ = nullptr;
  uint64_t mapped_size_ = 0;
};

class PosixEnv final : public Env {
 public:
  Status Open(const std::string& path, OpenMode mode, std::unique_ptr<File>* file) override {
    // O_NONBLOCK: without it, opening a FIFO that somebody has put in the file's place would never return.
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    if (mode == OpenMode::kRead) flags |= O_RDONLY;
    // Write-only: through a descriptor that may also read, the client of a network file system reads the rest of a page
    // and writes the whole page back, over bytes that another node has written there. Through a write-only descriptor
    // it sends the written bytes alone.
    if (mode == OpenMode::kUpdate) flags |= O_WRONLY | O_CREAT;
    if (mode == OpenMode::kNew) flags |= O_WRONLY | O_CREAT | O_EXCL;
    if (mode == OpenMode::kTruncate) flags |= O_WRONLY | O_CREAT;  // emptied below, when it is known what it is
    if (mode == OpenMode::kDirect) flags |= O_WRONLY | O_CREAT | O_DIRECT;
    const bool is_private = mode == OpenMode::kPrivate;
    if (is_private) flags |= O_RDWR | O_CREAT;
    // Made before the file is opened: if there is no memory for the object, there is no descriptor to close.
    auto opened = std::make_unique<PosixFile>(path, mode == OpenMode::kDirect);
    const auto open = [&] { return ::open(path.c_str(), flags, is_private ? kPrivateMode : kFileMode); };
    int fd = Retry(open);
    if (fd < 0 && errno == EWOULDBLOCK) {  // another process holds a lease on this regular file: wait for it
      flags &= ~O_NONBLOCK;
      fd = Retry(open);
    }
    if (fd < 0) return Status::FromErrno(errno, "open", path);
    opened->Own(fd);
    DF_RETURN_IF_ERROR(CheckRegular(fd, path, mode));
    if (mode == OpenMode::kTruncate) DF_RETURN_IF_ERROR(opened->Truncate(0));
    if (is_private) DF_RETURN_IF_ERROR(CheckPrivate(fd, path));
    *file = std::move(opened);
    return {};
  }

  Status Stat(const std::string& path, FileInfo* info) override {
    *info = FileInfo();
    struct stat raw;
    if (Retry([&] { return ::lstat(path.c_str(), &raw); }) != 0) {
      return errno == ENOENT || errno == ENOTDIR ? Status() : Status::FromErrno(errno, "stat", path);
    }
    info->exists = true;
    info->is_directory = S_ISDIR(raw.st_mode);
    info->uid = raw.st_uid;
    info->mode = raw.st_mode & 07777;
    info->size = static_cast<uint64_t>(raw.st_size);
    info->block = static_cast<uint64_t>(raw.st_blksize);
    return {};
  }

  Status List(const std::string& path, std::vector<std::string>* names, bool* exists) override {
    names->clear();
    const std::unique_ptr<DIR, Closer> directory(Retry([&] { return ::opendir(path.c_str()); }));
    *exists = directory != nullptr;
    if (directory == nullptr) return errno == ENOENT ? Status() : Status::FromErrno(errno, "opendir", path);
    const auto next = [&] {
      errno = 0;  // readdir returns null at the end too, and then leaves errno as it is
      return ::readdir(directory.get());
    };
    while (const dirent* entry = Retry(next)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names->push_back(name);
    }
    const int error = errno;
    return error == 0 ? Status() : Status::FromErrno(error, "readdir", path);
  }

  Status Rename(const std::string& from, const std::string& to) override {
    return Result(Retry([&] { return ::rename(from.c_str(), to.c_str()); }), "rename", from + " to " + to);
  }

  Status MakeDir(const std::string& path, uint32_t mode) override {
    if (Retry([&] { return ::mkdir(path.c_str(), mode & kNotForAll); }) == 0 || errno == EEXIST) return {};
    return Status::FromErrno(errno, "mkdir", path);
  }

  Status Unlink(const std::string& path) override {
    if (Retry([&] { return ::unlink(path.c_str()); }) == 0 || errno == ENOENT) return {};
    return Status::FromErrno(errno, "unlink", path);
  }

  Status RemoveDir(const std::string& path) override {
    if (Retry([&] { return ::rmdir(path.c_str()); }) == 0 || errno == ENOENT) return {};
    return Status::FromErrno(errno, "rmdir", path);
  }

  Status SyncDir(const std::string& path) override {
    const int fd = Retry([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
    if (fd < 0) return Status::FromErrno(errno, "fsync", path);
    const int result = Retry([&] { return ::fsync(fd); });
    const int error = errno;
    ::close(fd);
    return result == 0 ? Status() : Status::FromErrno(error, "fsync", path);
  }

  Status Refresh(const std::string& directory) override {
    const int fd = Retry([&] { return ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); });
    if (fd < 0) return Status::FromErrno(errno, "open", directory);
    struct stat info;
    const int result = ::fstat(fd, &info);
    const int error = errno;
    ::close(fd);
    return result == 0 ? Status() : Status::FromErrno(error, "stat", directory);
  }

  bool InMemory([[maybe_unused]] const std::string& path) override {
#ifdef __linux__
    constexpr long kTmpfs = 0x01021994;
    struct statfs info;
    return Retry([&] { return ::statfs(path.c_str(), &info); }) == 0 && info.f_type == kTmpfs;
#else
    return false;
#endif
  }

  char* AllocatePages(uint64_t size) override {
    void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    Advise(static_cast<char*>(data), size);
    return static_cast<char*>(data);
  }

  Status Populate([[maybe_unused]] char* data, [[maybe_unused]] uint64_t n) override {
#ifdef MADV_POPULATE_WRITE
    return Result(Retry([&] { return ::madvise(data, n, MADV_POPULATE_WRITE); }), "madvise", "memory");
#else
    return Status::FromErrno(EINVAL, "madvise", "memory");
#endif
  }

  Status JoinPages([[maybe_unused]] char* data, [[maybe_unused]] uint64_t n) override {
#ifdef __linux__
    constexpr int kCollapse = 25;  // MADV_COLLAPSE, of Linux 6.1
    if (Retry([&] { return ::madvise(data, n, kCollapse); }) == 0) return {};
    const int error = errno;
    // Without this file the kernel has no huge pages for files in memory, however they are mounted.
    const bool has = ::access("/sys/kernel/mm/transparent_hugepage/shmem_enabled", F_OK) == 0;
    if (error == EINVAL && has) return Status(Code::kInvalid, "madvise: the system makes no huge pages of small ones");
    return Status::FromErrno(error, "madvise", "memory");
#else
    return Status::FromErrno(EOPNOTSUPP, "madvise", "memory");
#endif
  }

  void FreePages(char* data, uint64_t size) override { ::munmap(data, size); }

  uint64_t NowMicros() override {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(now).count());
  }

  uint64_t CpuMicros() override {
    timespec time{};
    if (::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) != 0) return 0;
    return static_cast<uint64_t>(time.tv_sec) * 1000000 + static_cast<uint64_t>(time.tv_nsec) / 1000;
  }

  uint64_t ThreadCpuNanos() override {
    timespec time{};
    if (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0) return 0;
    return static_cast<uint64_t>(time.tv_sec) * 1000000000 + static_cast<uint64_t>(time.tv_nsec);
  }

  // Of the C library's counts none says which cores a thread is bound to: glibc counts those of the machine, for
  // hardware_concurrency too. A C library whose sysconf heeds the binding (musl, glibc 2.34) has `online` too small.
  CoreCount Cores() override {
    const long counted = ::sysconf(_SC_NPROCESSORS_ONLN);
    const uint32_t online = counted > 0 ? static_cast<uint32_t>(counted) : 1;
    const uint32_t bound = BoundCores();
    return CoreCount{bound > 0 ? bound : online, online};
  }

  int64_t WallSeconds() override { return static_cast<int64_t>(std::time(nullptr)); }

  void SleepMillis(uint64_t ms) override { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

  uint32_t UserId() override { return ::geteuid(); }

  int64_t ProcessId() override { return ::getpid(); }
};

}  // namespace

Env* Env::Posix() {
  // Never destroyed, because the threads of an engine that was not closed may still use it while the process exits.
  static Env* env = new PosixEnv;
  return env;
}

}  // namespace deepfreeze
