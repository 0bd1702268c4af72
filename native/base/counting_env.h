// An Env that counts the calls to another one, and their bytes.
#ifndef DEEPFREEZE_BASE_COUNTING_ENV_H_
#define DEEPFREEZE_BASE_COUNTING_ENV_H_

#include <memory>
#include <string>
#include <vector>

#include "base/counters.h"
#include "base/env.h"

namespace deepfreeze {

// The same file, whose calls and bytes `place` counts; place must outlive it.
std::unique_ptr<File> Counting(std::unique_ptr<File> file, PlaceCounters* place);

class CountingEnv final : public Env {
 public:
  // Calls that name local_dir or a path below it are counted as the local tier's, all others as the external store's.
  // base and counters must outlive this and every file that it has opened.
  CountingEnv(Env* base, std::string local_dir, Counters* counters);

  Status Open(const std::string& path, OpenMode mode, std::unique_ptr<File>* file) override;
  Status Stat(const std::string& path, FileInfo* info) override;
  Status List(const std::string& path, std::vector<std::string>* names, bool* exists) override;
  Status Rename(const std::string& from, const std::string& to) override;
  Status MakeDir(const std::string& path, uint32_t mode) override;
  Status Unlink(const std::string& path) override;
  Status RemoveDir(const std::string& path) override;
  Status SyncDir(const std::string& path) override;
  Status Refresh(const std::string& directory) override;
  bool InMemory(const std::string& path) override { return base_->InMemory(path); }
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
  PlaceCounters* Of(const std::string& path) const;

  Env* const base_;
  const std::string local_;  // empty: no local tier
  Counters* const counters_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_COUNTING_ENV_H_
