// Everything the engine asks of the operating system. Tests wrap it (testing/fault_env.h) to fail, cut short, delay or
// kill at any call, so no other file may call the system directly.
//
// An Env outlives everything made from it. All methods may be called from any thread.
#ifndef DEEPFREEZE_BASE_ENV_H_
#define DEEPFREEZE_BASE_ENV_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace deepfreeze {

// An open file. Reads and writes carry their own offset, so threads may share one. The destructor closes.
class File {
 public:
  explicit File(std::string path) : path_(std::move(path)) {}
  virtual ~File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }

  // One system call each: *done may be less than n (0 at the end of the file). Use ReadFull and WriteFull.
  virtual Status PRead(uint64_t offset, void* data, size_t n, size_t* done) = 0;
  virtual Status PWrite(uint64_t offset, const void* data, size_t n, size_t* done) = 0;

  // Whether writes go past the page cache: those to a file opened with kDirect, until the file system refuses one.
  virtual bool Direct() const { return false; }

  virtual Status Size(uint64_t* size) = 0;
  virtual Status Truncate(uint64_t size) = 0;
  // Reserves blocks for [0, size), so that later writes there can't run out of space. Sparse where unsupported.
  virtual Status Allocate(uint64_t size) = 0;
  virtual Status DataSync() = 0;
  virtual Status Sync() = 0;
  // Makes a file on memory-backed storage at least size bytes long and maps all of it, to be read and written, with its
  // memory reserved: storing to it can't fail later. The mapping lives as long as this object, and not in a forked
  // child, which would keep the memory of a removed file. Once per file.
  virtual Status Map(uint64_t size, char** data) = 0;
  // A hint to begin writing a range back now; never fails.
  virtual void StartWriteback(uint64_t offset, uint64_t n) = 0;
  // Closes early, to see the error. Nothing may follow but the destructor.
  virtual Status Close() = 0;

 private:
  const std::string path_;
};

enum class OpenMode {
  kRead,      // must exist
  kUpdate,    // to be written only; made if missing, kept as it is otherwise
  kTruncate,  // to be written only; made if missing, emptied otherwise
  kDirect,    // as kUpdate, past the page cache: offsets, sizes and memory are multiples of kDirectUnit. An error where
              // the file system can't.
  kPrivate,   // as kUpdate, to be read too, for this user's eyes alone (0600). An error if it is anything but a file of
              // the user's that has this one name: where others may write, it could be made a name of something else.
};

constexpr uint64_t kDirectUnit = 4096;

struct FileInfo {
  bool exists = false;
  bool is_directory = false;  // false for a symbolic link, which is never followed
  uint32_t uid = 0;
  uint32_t mode = 0;  // the permission bits
  uint64_t size = 0;
};

class Env {
 public:
  virtual ~Env() = default;

  // The machine's own; lives for ever.
  static Env* Posix();

  virtual Status Open(const std::string& path, OpenMode mode, std::unique_ptr<File>* file) = 0;
  // A missing file is no error: info->exists says.
  virtual Status Stat(const std::string& path, FileInfo* info) = 0;
  // Names without "." and "..", in no order. *exists is false, and the status ok, for a missing directory.
  virtual Status List(const std::string& path, std::vector<std::string>* names, bool* exists) = 0;
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // An existing directory is no error: several ranks make the same one.
  virtual Status MakeDir(const std::string& path, uint32_t mode) = 0;
  // A missing file is no error: what was to be removed is gone.
  virtual Status Unlink(const std::string& path) = 0;
  virtual Status RemoveDir(const std::string& path) = 0;
  virtual Status SyncDir(const std::string& path) = 0;
  // Opens the directory anew, and asks for its attributes, so that names looked up in it from now on are asked of the
  // file system: a client of a network file system remembers for a minute that a name was not there, and what a name
  // stood for. An error: what is looked up may be what was remembered.
  virtual Status Refresh(const std::string& directory) = 0;
  // Whether files there are memory (tmpfs), so that Map works.
  virtual bool InMemory(const std::string& path) = 0;

  // size bytes of zeroed memory in pages of its own, touched, on huge pages where the system has them. Null if there is
  // no room. FreePages gives it back. A forked child does not have it: what both had would be copied when either writes
  // to it, page by page, and a disk that reads it meanwhile might read one or the other.
  virtual char* AllocatePages(uint64_t size) = 0;
  virtual void FreePages(char* data, uint64_t size) = 0;

  virtual uint64_t NowMicros() = 0;   // monotonic
  virtual int64_t WallSeconds() = 0;  // since 1970, UTC
  virtual void SleepMillis(uint64_t ms) = 0;
  virtual uint32_t UserId() = 0;
  virtual int64_t ProcessId() = 0;
};

// All n bytes, or an error; the end of the file before n bytes is kCorrupt.
Status ReadFull(File* file, uint64_t offset, void* data, size_t n);
Status WriteFull(File* file, uint64_t offset, const void* data, size_t n);
// The whole of a small file; more than limit bytes is kCorrupt.
Status ReadSmallFile(Env* env, const std::string& path, uint64_t limit, std::string* contents);
// kInvalid, in four parts, if this is not `process`, which opened `thing`, but one that was forked from it: its copy
// has no threads, and locks that may never be opened.
Status CheckProcess(Env* env, int64_t process, const std::string& call, const std::string& thing);
// path holds exactly contents after this, or what it held before, also after a crash: written beside it, fsynced
// (unless it may be lost), renamed. The caller syncs the directory.
//
// An error of the rename does not say that it did not happen: a network file system that has lost the first reply
// repeats the request and answers ENOENT. So after one this looks. *perhaps, if not null: whether path may hold the
// contents now; after an error it is true where that could not be seen.
Status ReplaceFile(Env* env, const std::string& path, const std::string& contents, bool sync, bool* perhaps = nullptr);
// Renames a file or directory within its parent; both names are this caller's alone, and to is free. Looks after an
// error, as ReplaceFile.
Status Move(Env* env, const std::string& from, const std::string& to);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_ENV_H_
