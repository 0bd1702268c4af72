// An Env that records every call that changes a file or a directory in a log, in the order of the calls. From the log a
// test works out what a crash between any two calls would have left (tests/support/page_cache.py). For tests only.
//
// The log is a sequence of entries, little-endian: u8 operation, u8 open mode, u16 zero, u16 bytes of the path, u16
// bytes of the second path, u64 handle (a number for each opened file), u64 argument, u64 bytes of data; then the path,
// the second path and the data. Each entry is appended by one write, so that other processes may append to the log too.
//
//   'O' open (handle, path, mode)   'W' pwrite (handle, offset, data)   'T' truncate (handle, size)
//   'A' allocate (handle, size)     'S' fsync or fdatasync (handle)     'R' rename (path, second path)
//   'M' mkdir   'U' unlink   'D' rmdir   'Y' fsync of a directory       (path)
//
// Calls that fail are left out. This Env makes one call at a time, so that the log has the order in which they
// happened.
#ifndef DEEPFREEZE_TESTING_RECORD_ENV_H_
#define DEEPFREEZE_TESTING_RECORD_ENV_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/env.h"

namespace deepfreeze {

class RecordEnv final : public Env {
 public:
  // base must outlive this. Appends to the file `log`; aborts if it can't be written, since a test must not pass
  // without its log.
  RecordEnv(Env* base, const std::string& log);

  Status Open(const std::string& path, OpenMode mode, std::unique_ptr<File>* file) override;
  Status Stat(const std::string& path, FileInfo* info) override { return base_->Stat(path, info); }
  Status List(const std::string& path, std::vector<std::string>* names, bool* exists) override {
    return base_->List(path, names, exists);
  }
  Status Rename(const std::string& from, const std::string& to) override;
  Status MakeDir(const std::string& path, uint32_t mode) override;
  Status Unlink(const std::string& path) override;
  Status RemoveDir(const std::string& path) override;
  Status SyncDir(const std::string& path) override;
  Status Refresh(const std::string& directory) override { return base_->Refresh(directory); }
  // Stores to mapped memory make no call that could be recorded, so no file is mapped.
  bool InMemory(const std::string&) override { return false; }
  char* AllocatePages(uint64_t size) override { return base_->AllocatePages(size); }
  Status Populate(char* data, uint64_t n) override { return base_->Populate(data, n); }
  Status JoinPages(char* data, uint64_t n) override { return base_->JoinPages(data, n); }
  void FreePages(char* data, uint64_t size) override { base_->FreePages(data, size); }
  uint64_t NowMicros() override { return base_->NowMicros(); }
  uint64_t CpuMicros() override { return base_->CpuMicros(); }
  uint64_t ThreadCpuNanos() override { return base_->ThreadCpuNanos(); }
  CoreCount Cores() override { return base_->Cores(); }
  int64_t WallSeconds() override { return base_->WallSeconds(); }
  void SleepMillis(uint64_t ms) override { base_->SleepMillis(ms); }
  uint32_t UserId() override { return base_->UserId(); }
  int64_t ProcessId() override { return base_->ProcessId(); }

 private:
  friend class RecordFile;
  struct Entry {
    char operation = 0;
    OpenMode mode = OpenMode::kRead;
    std::string path, second;
    uint64_t handle = 0;
    uint64_t argument = 0;
    const void* data = nullptr;
    size_t n = 0;
  };
  void Append(const Entry& entry);
  Status OnPath(char operation, const std::string& path, const std::function<Status()>& call);

  Env* const base_;
  int fd_ = -1;
  std::mutex mutex_;
  uint64_t handles_ = 0;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_TESTING_RECORD_ENV_H_
