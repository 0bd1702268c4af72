// An Env that counts calls, and lets a test wait in one. For tests only.
#ifndef DEEPFREEZE_TESTING_COUNT_ENV_H_
#define DEEPFREEZE_TESTING_COUNT_ENV_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/env.h"

namespace deepfreeze {

class CountEnv final : public Env {
 public:
  // base must outlive this. below: only calls about this directory and what is in it are counted.
  explicit CountEnv(Env* base, std::string below = "") : base_(base), below_(std::move(below)) {}

  // All calls about names.
  uint64_t calls() const { return metadata + lists + refreshes; }

  std::atomic<uint64_t> metadata{0};    // calls about names, not about a file's bytes; all but the next two
  std::atomic<uint64_t> lists{0};       // directories that were listed
  std::atomic<uint64_t> names_read{0};  // in these listings
  std::atomic<uint64_t> refreshes{0};   // directories that were opened anew, as each look does once
  std::atomic<uint64_t> populates{0};   // pieces of memory for which pages were found
  std::atomic<uint64_t> largest{0};     // bytes of the largest of these pieces
  std::atomic<uint64_t> joins{0};       // calls of JoinPages
  std::atomic<uint64_t> pages{0};       // bytes of AllocatePages that are not given back
  std::atomic<uint64_t> most_pages{0};  // as many of them at a time as ever
  // Called before each Open; a test may wait in it, and a failure is returned.
  std::function<Status(const std::string& path)> on_open;
  // In place of the base's JoinPages.
  std::function<Status()> on_join;
  // Called before each Populate with the number of the call, from 1; a test may wait in it, and a failure is returned.
  std::function<Status(uint64_t nth)> on_populate;
  // In place of the base's NowMicros.
  std::function<uint64_t()> on_now;
  // In place of the base's CpuMicros.
  std::function<uint64_t()> on_cpu;
  // In place of the base's ThreadCpuNanos.
  std::function<uint64_t()> on_thread_cpu;
  // In place of the base's Cores.
  std::function<CoreCount()> on_cores;

  Status Open(const std::string& path, OpenMode mode, std::unique_ptr<File>* file) override {
    Count(path, &metadata);
    if (on_open) DF_RETURN_IF_ERROR(on_open(path));
    return base_->Open(path, mode, file);
  }
  Status Stat(const std::string& path, FileInfo* info) override {
    Count(path, &metadata);
    return base_->Stat(path, info);
  }
  Status List(const std::string& path, std::vector<std::string>* names, bool* exists) override {
    Count(path, &lists);
    const Status status = base_->List(path, names, exists);
    if (path.compare(0, below_.size(), below_) == 0) names_read += names->size();
    return status;
  }
  Status Rename(const std::string& from, const std::string& to) override {
    Count(from, &metadata);
    return base_->Rename(from, to);
  }
  Status MakeDir(const std::string& path, uint32_t mode) override {
    Count(path, &metadata);
    return base_->MakeDir(path, mode);
  }
  Status Unlink(const std::string& path) override {
    Count(path, &metadata);
    return base_->Unlink(path);
  }
  Status RemoveDir(const std::string& path) override {
    Count(path, &metadata);
    return base_->RemoveDir(path);
  }
  Status SyncDir(const std::string& path) override {
    Count(path, &metadata);
    return base_->SyncDir(path);
  }
  Status Refresh(const std::string& directory) override {
    Count(directory, &refreshes);
    return base_->Refresh(directory);
  }
  bool InMemory(const std::string& path) override { return base_->InMemory(path); }
  char* AllocatePages(uint64_t size) override {
    Raise(&most_pages, pages += size);
    return base_->AllocatePages(size);
  }
  Status Populate(char* data, uint64_t n) override {
    const uint64_t nth = ++populates;
    Raise(&largest, n);
    if (on_populate) DF_RETURN_IF_ERROR(on_populate(nth));
    return base_->Populate(data, n);
  }
  Status JoinPages(char* data, uint64_t n) override {
    ++joins;
    return on_join ? on_join() : base_->JoinPages(data, n);
  }
  void FreePages(char* data, uint64_t size) override {
    pages -= size;
    base_->FreePages(data, size);
  }
  uint64_t NowMicros() override { return on_now ? on_now() : base_->NowMicros(); }
  uint64_t CpuMicros() override { return on_cpu ? on_cpu() : base_->CpuMicros(); }
  uint64_t ThreadCpuNanos() override { return on_thread_cpu ? on_thread_cpu() : base_->ThreadCpuNanos(); }
  CoreCount Cores() override { return on_cores ? on_cores() : base_->Cores(); }
  int64_t WallSeconds() override { return base_->WallSeconds(); }
  void SleepMillis(uint64_t ms) override { base_->SleepMillis(ms); }
  uint32_t UserId() override { return base_->UserId(); }
  int64_t ProcessId() override { return base_->ProcessId(); }

 private:
  void Count(const std::string& path, std::atomic<uint64_t>* calls) {
    if (path.compare(0, below_.size(), below_) == 0) ++*calls;
  }

  static void Raise(std::atomic<uint64_t>* most, uint64_t value) {
    for (uint64_t seen = *most; seen < value && !most->compare_exchange_weak(seen, value);) {
    }
  }

  Env* const base_;
  const std::string below_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_TESTING_COUNT_ENV_H_
