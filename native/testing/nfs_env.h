// An Env that behaves as a client of a network file system does (Linux NFS). Each rank of a test has one; all of them
// are over one directory, which stands for the server's. For tests only.
//
//   bytes   Writes stay in the client's page cache until a sync or a close. A write of a part of a page through a
//           descriptor that may also read makes the client read the page first, and later write all of it back, over
//           bytes that another client has written there meanwhile. Of a descriptor that may only write the client sends
//           just the bytes written. Direct writes go to the server at once.
//   names   For kRemembersSeconds of its clock the client remembers that a name was missing, and which directory a name
//           stands for. It forgets a name earlier when the directory around it is opened anew (Refresh, List, SyncDir),
//           or when the client itself changes the name. A remembered directory stays the same one when it is renamed.
//           If another client removes it, calls on it return ESTALE; so do calls on a removed file.
//   replies With LoseReplies the first reply to each change of a name is lost: the client repeats the request, and the
//           caller gets the reply to the second one.
//
// Paths outside of the root are the machine's own, for example those of a local tier.
#ifndef DEEPFREEZE_TESTING_NFS_ENV_H_
#define DEEPFREEZE_TESTING_NFS_ENV_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/env.h"

namespace deepfreeze {

class NfsInode;

class NfsEnv final : public Env {
 public:
  static constexpr uint64_t kRemembersSeconds = 60;

  // base is the server's file system, and must outlive this; it may be an Env that fails or records calls. root is an
  // existing directory of it.
  NfsEnv(Env* base, std::string root);
  ~NfsEnv() override;

  // Sets this client's clock forwards.
  void Advance(uint64_t seconds);
  void LoseReplies(bool lose);
  // Whether this client remembers that there is nothing under this name.
  bool RemembersNone(const std::string& path);

  Status Open(const std::string& path, OpenMode mode, std::unique_ptr<File>* file) override;
  Status Stat(const std::string& path, FileInfo* info) override;
  Status List(const std::string& path, std::vector<std::string>* names, bool* exists) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status MakeDir(const std::string& path, uint32_t mode) override;
  Status Unlink(const std::string& path) override;
  Status RemoveDir(const std::string& path) override;
  Status SyncDir(const std::string& path) override;
  Status Refresh(const std::string& directory) override;
  bool InMemory(const std::string& path) override { return !Mounted(path) && base_->InMemory(path); }
  char* AllocatePages(uint64_t size) override { return base_->AllocatePages(size); }
  Status Populate(char* data, uint64_t n) override { return base_->Populate(data, n); }
  Status JoinPages(char* data, uint64_t n) override { return base_->JoinPages(data, n); }
  void FreePages(char* data, uint64_t size) override { base_->FreePages(data, size); }
  uint64_t NowMicros() override;
  uint64_t CpuMicros() override { return base_->CpuMicros(); }
  uint64_t ThreadCpuNanos() override { return base_->ThreadCpuNanos(); }
  CoreCount Cores() override { return base_->Cores(); }
  int64_t WallSeconds() override { return base_->WallSeconds(); }
  void SleepMillis(uint64_t ms) override { base_->SleepMillis(ms); }
  uint32_t UserId() override { return base_->UserId(); }
  int64_t ProcessId() override { return base_->ProcessId(); }

 private:
  // What the client remembers of a name: a directory, or that there is nothing.
  struct Entry {
    int directory = -1;     // O_PATH descriptor; -1: the name is missing
    uint64_t since_us = 0;  // when it was looked up
  };

  bool Mounted(const std::string& path) const;
  uint64_t NowLocked() { return base_->NowMicros() + advanced_us_; }
  // The remembered entry of a name; null if there is none, or it is too old.
  const Entry* RecallLocked(const std::string& path);
  void ForgetLocked(const std::string& path);              // the name, and what is below it
  void ForgetNamesInLocked(const std::string& directory);  // its own names: it is opened anew
  void RememberAbsentLocked(const std::string& path);
  // *real: the server's path of the directory, or of the file, that this client finds under `path`.
  Status FindDirectoryLocked(const std::string& path, std::string* real);
  Status FindLocked(const std::string& path, std::string* real);
  // Calls `change` with the server's path: once, or twice if replies are lost.
  Status ChangeLocked(const std::string& path, const std::function<Status(const std::string& real)>& change);
  Status OpenDirectoryLocked(const std::string& path, std::string* real);

  Env* const base_;
  const std::string root_;
  std::mutex mutex_;
  uint64_t advanced_us_ = 0;
  bool lose_replies_ = false;
  std::map<std::string, Entry> entries_;                                     // by the client's name
  std::map<std::pair<uint64_t, uint64_t>, std::weak_ptr<NfsInode>> inodes_;  // by device and number
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_TESTING_NFS_ENV_H_
