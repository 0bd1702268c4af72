// Every call that the engine makes to the operating system. Tests put an Env of their own in its place, which fails or
// delays any call or kills the process there (testing/fault_env.h), so no other file may call the system directly.
//
// An Env must outlive everything made from it. All methods of Env and File may be called from any thread, except where
// a comment says otherwise. Offsets and sizes are in bytes. Errors are kIo, or kNoSpace for a full disk or quota, and
// name the operation, the path and the system's error.
#ifndef DEEPFREEZE_BASE_ENV_H_
#define DEEPFREEZE_BASE_ENV_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace deepfreeze {

// An open file; made by Env::Open. Reads and writes have their own offset, so threads may share a File. The destructor
// closes the file and ignores errors.
class File {
 public:
  explicit File(std::string path) : path_(std::move(path)) {}
  virtual ~File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::string& path() const { return path_; }

  // One system call each. *done is how many bytes were read or written: it may be less than n, and PRead sets it to 0
  // at the end of the file. Callers that want all n bytes use ReadFull and WriteFull, below.
  virtual Status PRead(uint64_t offset, void* data, size_t n, size_t* done) = 0;
  virtual Status PWrite(uint64_t offset, const void* data, size_t n, size_t* done) = 0;

  // Whether writes go past the page cache: true for a file opened with kDirect until the file system refuses such a
  // write; from then on all writes to it go through the cache.
  virtual bool Direct() const { return false; }

  virtual Status Size(uint64_t* size) = 0;
  // *number: the file's number on its file system. While two files are open, they are one file if their numbers are
  // equal.
  virtual Status Number(uint64_t* number) = 0;
  virtual Status Truncate(uint64_t size) = 0;
  // Makes the file at least size bytes long and reserves blocks for [0, size), so that later writes there can't run out
  // of space. On file systems that can't reserve, the file gets its size and no blocks.
  virtual Status Allocate(uint64_t size) = 0;
  // fdatasync and fsync. After an error the data must be taken for lost: a second call may succeed without it.
  virtual Status DataSync() = 0;
  virtual Status Sync() = 0;
  // For a file on memory-backed storage: makes it at least size bytes long and maps [0, size) for reading and writing.
  // Stores into the mapping may fail, by a signal, until Populate or Allocate has found the memory for them. The
  // mapping lives as long as this object, and begins a huge page if it has the size of one. A forked child does not
  // have it: there it would keep the memory of a removed file. At most once per File.
  virtual Status Map(uint64_t size, char** data) = 0;
  // A hint that the system begin to write the range to the disk now. Never fails.
  virtual void StartWriteback(uint64_t offset, uint64_t n) = 0;
  // Closes the file and returns the error that the destructor would ignore. After it only the destructor may be called.
  virtual Status Close() = 0;

 private:
  const std::string path_;
};

// testing/record_env.h logs the numbers, so a new mode comes last.
enum class OpenMode {
  kRead,      // for reading; the file must exist
  kUpdate,    // for writing; made if missing, otherwise its content stays
  kTruncate,  // for writing; made if missing, otherwise emptied
  kDirect,    // as kUpdate, and writes go past the page cache: their offsets, sizes and memory addresses must be
              // multiples of kDirectUnit. An error if the file system can't do that.
  kPrivate,  // as kUpdate, and for reading too; only this user may read and write the file (mode 0600). An error if the
             // path is anything but a regular file of this user with one name: in a directory where others may write,
             // somebody could have made the path a second name of another file.
  kNew,      // for writing; made. If the path exists: kIo, with error() EEXIST
};

constexpr uint64_t kDirectUnit = 4096;

constexpr uint64_t kHugePage = uint64_t{2} << 20;

// Numbers of cores, at least 1 each.
struct CoreCount {
  uint32_t bound = 1;   // that the calling thread may run on, and so may the threads that it starts
  uint32_t online = 1;  // of the machine, whoever may run on them
};

struct FileInfo {
  bool exists = false;
  bool is_directory = false;  // false for a symbolic link, which Stat does not follow
  uint32_t uid = 0;           // the owner's user id
  uint32_t mode = 0;          // the permission bits
  uint64_t size = 0;
  uint64_t block = 0;  // bytes that the file system likes to be given at a time; kHugePage for files in huge pages
};

class Env {
 public:
  virtual ~Env() = default;

  // The Env of this machine's system calls. It is never destroyed.
  static Env* Posix();

  // Opens a regular file; the caller owns *file. Never follows a symbolic link: that is kIo. A directory, a pipe, a
  // device or a socket is kCorrupt with kRead, kIo otherwise. A file that has another name too is only read, and kIo
  // with any other mode: somebody may have given this name to another file of this user's.
  virtual Status Open(const std::string& path, OpenMode mode, std::unique_ptr<File>* file) = 0;
  // Of a missing path the status is ok and info->exists false.
  virtual Status Stat(const std::string& path, FileInfo* info) = 0;
  // The names in a directory, without "." and "..", in no order. Of a missing directory the status is ok and *exists
  // false.
  virtual Status List(const std::string& path, std::vector<std::string>* names, bool* exists) = 0;
  virtual Status Rename(const std::string& from, const std::string& to) = 0;
  // Makes a directory with these permission bits, less the umask's; never writable for everybody. Ok if the path exists
  // already, because several ranks make the same directory.
  virtual Status MakeDir(const std::string& path, uint32_t mode) = 0;
  // Both are ok if the path is missing: the caller wants it gone.
  virtual Status Unlink(const std::string& path) = 0;
  virtual Status RemoveDir(const std::string& path) = 0;
  // Makes the names in a directory durable.
  virtual Status SyncDir(const std::string& path) = 0;
  // After this, names in the directory are looked up on the file server. Without it a client of a network file system
  // may answer from memory: for about a minute it remembers that a name was missing, and which file a name stood for.
  // After an error, look-ups may still be answered from memory.
  virtual Status Refresh(const std::string& directory) = 0;
  // Whether files under path are memory (tmpfs), so that File::Map works.
  virtual bool InMemory(const std::string& path) = 0;

  // size bytes of zeroed memory, which starts at a page; its pages are found when they are first written to, or by
  // Populate, and are huge where the system has such. Null if there is no room. A forked child does not have this
  // memory: if both processes had it, the first write by either would copy the page, and a disk that reads the page
  // meanwhile might read either copy.
  virtual char* AllocatePages(uint64_t size) = 0;
  // Has the system find a page now for every part of [data, data + n), which is memory of AllocatePages or of
  // File::Map: the first write to a fresh page takes seven times as long as the write itself. One call to the system,
  // and for its duration no thread of the process can map or unmap memory. So callers hand over small pieces
  // (PopulatePieces, in base/pages.h). kIo with error() ENOMEM if there is no room; other errors also where the system
  // can't do this, or where the file of the mapping has no room.
  virtual Status Populate(char* data, uint64_t n) = 0;
  // Makes huge pages of [data, data + n), memory of File::Map: data and n are multiples of kHugePage, and in each huge
  // page one page has been found. All the memory is found then. Needs no rights and no mount option; other threads may
  // map memory meanwhile. After an error the memory is as it was: kInvalid if the system never does this, but would if
  // the file system were mounted so; kIo if it can't here and now, or not at all.
  virtual Status JoinPages(char* data, uint64_t n) = 0;
  // Gives back memory of AllocatePages; size is the same.
  virtual void FreePages(char* data, uint64_t size) = 0;

  virtual uint64_t NowMicros() = 0;       // microseconds of a clock that never jumps
  virtual uint64_t CpuMicros() = 0;       // CPU time of all threads of this process
  virtual uint64_t ThreadCpuNanos() = 0;  // CPU time of the calling thread, in nanoseconds: a small copy takes few
  virtual CoreCount Cores() = 0;
  virtual int64_t WallSeconds() = 0;  // seconds since 1970, UTC; this clock may jump
  virtual void SleepMillis(uint64_t ms) = 0;
  virtual uint32_t UserId() = 0;
  virtual int64_t ProcessId() = 0;
};

// Reads or writes all n bytes, or returns an error. ReadFull: kCorrupt if the file ends before n bytes.
Status ReadFull(File* file, uint64_t offset, void* data, size_t n);
Status WriteFull(File* file, uint64_t offset, const void* data, size_t n);
// Reads a whole file. kCorrupt if it has more than limit bytes.
Status ReadSmallFile(Env* env, const std::string& path, uint64_t limit, std::string* contents);
// Ok if the calling process is `process`, the one that opened `thing`. kInvalid in a process forked from it: its copy
// of the thing has no threads, and has locks that may stay locked for ever. `call` names the caller in the message.
Status CheckProcess(Env* env, int64_t process, const std::string& call, const std::string& thing);
// Opens a new file for writing, in place of what has this name: a file that a dead process has left, or a link, whose
// other file stays as it is. REQUIRES: no other process makes a file of this name.
Status OpenNew(Env* env, const std::string& path, std::unique_ptr<File>* file);
// Replaces the content of path as a whole: after this, and after a crash at any point, path has either the new contents
// or what it had before. Writes path.tmp, a new file, fsyncs it if `sync`, and renames it to path. The caller syncs the
// directory; without `sync` a crash may lose the contents.
//
// When the rename returns an error it may have happened all the same: a network file system that has lost the first
// reply repeats the request and answers ENOENT. So this function looks at the files after such an error, and returns ok
// if path has the contents. *perhaps, if not null, says whether path may have the contents now. After an error it is
// true if the files could not be looked at.
Status ReplaceFile(Env* env, const std::string& path, const std::string& contents, bool sync, bool* perhaps = nullptr);
// The same for a caller who has opened path.tmp, which is empty.
Status ReplaceFileBy(Env* env, std::unique_ptr<File> temporary, const std::string& path, const std::string& contents,
                     bool sync, bool* perhaps);
// Renames a file or directory within its parent. Nobody else may use either name, and `to` must be free. After an error
// of the rename it looks whether the rename has happened, as ReplaceFile does.
Status Move(Env* env, const std::string& from, const std::string& to);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_ENV_H_
