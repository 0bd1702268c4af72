#include "testing/record_env.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/coding.h"

namespace deepfreeze {

class RecordFile final : public File {
 public:
  RecordFile(RecordEnv* env, std::unique_ptr<File> base, uint64_t handle)
      : File(base->path()), env_(env), base_(std::move(base)), handle_(handle) {}

  Status PRead(uint64_t offset, void* data, size_t n, size_t* done) override {
    return base_->PRead(offset, data, n, done);
  }
  Status PWrite(uint64_t offset, const void* data, size_t n, size_t* done) override {
    std::lock_guard<std::mutex> lock(env_->mutex_);
    DF_RETURN_IF_ERROR(base_->PWrite(offset, data, n, done));
    RecordEnv::Entry entry = Mine('W', offset);
    entry.data = data;
    entry.n = *done;
    env_->Append(entry);
    return {};
  }
  bool Direct() const override { return base_->Direct(); }
  Status Size(uint64_t* size) override { return base_->Size(size); }
  Status Number(uint64_t* number) override { return base_->Number(number); }
  Status Truncate(uint64_t size) override {
    return Recorded('T', size, [&] { return base_->Truncate(size); });
  }
  Status Allocate(uint64_t size) override {
    return Recorded('A', size, [&] { return base_->Allocate(size); });
  }
  Status DataSync() override {
    return Recorded('S', 0, [&] { return base_->DataSync(); });
  }
  Status Sync() override {
    return Recorded('S', 0, [&] { return base_->Sync(); });
  }
  Status Map(uint64_t, char**) override { return Status(Code::kIo, "nothing is mapped while calls are recorded"); }
  void StartWriteback(uint64_t offset, uint64_t n) override { base_->StartWriteback(offset, n); }
  Status Close() override { return base_->Close(); }

 private:
  RecordEnv::Entry Mine(char operation, uint64_t argument) const {
    RecordEnv::Entry entry;
    entry.operation = operation;
    entry.handle = handle_;
    entry.argument = argument;
    return entry;
  }

  template <typename Call>
  Status Recorded(char operation, uint64_t argument, Call call) {
    std::lock_guard<std::mutex> lock(env_->mutex_);
    DF_RETURN_IF_ERROR(call());
    env_->Append(Mine(operation, argument));
    return {};
  }

  RecordEnv* const env_;
  const std::unique_ptr<File> base_;
  const uint64_t handle_;
};

RecordEnv::RecordEnv(Env* base, const std::string& log)
    : base_(base), fd_(::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (fd_ >= 0) return;
  std::perror(log.c_str());
  std::abort();
}

void RecordEnv::Append(const Entry& entry) {
  char head[32] = {};
  head[0] = entry.operation;
  head[1] = static_cast<char>(entry.mode);
  Put32(head + 4, static_cast<uint32_t>(entry.path.size() | entry.second.size() << 16));
  Put64(head + 8, entry.handle);
  Put64(head + 16, entry.argument);
  Put64(head + 24, entry.n);
  std::string bytes(head, sizeof(head));
  bytes += entry.path + entry.second;
  bytes.append(static_cast<const char*>(entry.data), entry.n);
  if (::write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size())) return;
  std::perror("the log of calls");
  std::abort();
}

Status RecordEnv::Open(const std::string& path, OpenMode mode, std::unique_ptr<File>* file) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<File> base;
  DF_RETURN_IF_ERROR(base_->Open(path, mode, &base));
  Entry entry;
  entry.operation = 'O';
  entry.mode = mode;
  entry.path = path;
  entry.handle = static_cast<uint64_t>(base_->ProcessId()) << 32 | ++handles_;  // several may share a log
  Append(entry);
  *file = std::make_unique<RecordFile>(this, std::move(base), entry.handle);
  return {};
}

Status RecordEnv::Rename(const std::string& from, const std::string& to) {
  std::lock_guard<std::mutex> lock(mutex_);
  DF_RETURN_IF_ERROR(base_->Rename(from, to));
  Entry entry;
  entry.operation = 'R';
  entry.path = from;
  entry.second = to;
  Append(entry);
  return {};
}

Status RecordEnv::OnPath(char operation, const std::string& path, const std::function<Status()>& call) {
  std::lock_guard<std::mutex> lock(mutex_);
  DF_RETURN_IF_ERROR(call());
  Entry entry;
  entry.operation = operation;
  entry.path = path;
  Append(entry);
  return {};
}

Status RecordEnv::MakeDir(const std::string& path, uint32_t mode) {
  return OnPath('M', path, [&] { return base_->MakeDir(path, mode); });
}

Status RecordEnv::Unlink(const std::string& path) {
  return OnPath('U', path, [&] { return base_->Unlink(path); });
}

Status RecordEnv::RemoveDir(const std::string& path) {
  return OnPath('D', path, [&] { return base_->RemoveDir(path); });
}

Status RecordEnv::SyncDir(const std::string& path) {
  return OnPath('Y', path, [&] { return base_->SyncDir(path); });
}

}  // namespace deepfreeze
