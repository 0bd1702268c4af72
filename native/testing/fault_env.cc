#include "testing/fault_env.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>

namespace deepfreeze {
namespace {

constexpr size_t kRemembered = 1024;  // writes

class FaultFile final : public File {
 public:
  FaultFile(FaultEnv* env, std::unique_ptr<File> base) : File(base->path()), env_(env), base_(std::move(base)) {}

  Status PRead(uint64_t offset, void* data, size_t n, size_t* done) override {
    return Around("pread", [&](bool half) { return base_->PRead(offset, data, Part(n, half), done); });
  }
  Status PWrite(uint64_t offset, const void* data, size_t n, size_t* done) override {
    return Around("pwrite", [&](bool half) {
      DF_RETURN_IF_ERROR(base_->PWrite(offset, data, Part(n, half), done));
      env_->Wrote(path(), offset, *done);
      return Status();
    });
  }
  bool Direct() const override { return base_->Direct(); }
  Status Number(uint64_t* number) override { return base_->Number(number); }
  Status Size(uint64_t* size) override {
    return Around("stat", [&](bool) { return base_->Size(size); });
  }
  Status Truncate(uint64_t size) override {
    return Around("ftruncate", [&](bool) { return base_->Truncate(size); });
  }
  Status Allocate(uint64_t size) override {
    return Around("fallocate", [&](bool) { return base_->Allocate(size); });
  }
  Status DataSync() override {
    return Around("fdatasync", [&](bool) { return base_->DataSync(); });
  }
  Status Sync() override {
    return Around("fsync", [&](bool) { return base_->Sync(); });
  }
  Status Map(uint64_t size, char** data) override {
    return Around("mmap", [&](bool) { return base_->Map(size, data); });
  }
  void StartWriteback(uint64_t offset, uint64_t n) override { base_->StartWriteback(offset, n); }
  Status Close() override {
    return Around("close", [&](bool) { return base_->Close(); });
  }

 private:
  static size_t Part(size_t n, bool half) { return half ? std::max<size_t>(n / 2, std::min<size_t>(n, 1)) : n; }

  template <typename Call>
  Status Around(const char* op, Call call) {
    const FaultEnv::Verdict verdict = env_->Before(op, path());
    if (verdict.lose) env_->Lose(base_.get());
    DF_RETURN_IF_ERROR(verdict.fail);
    return env_->After(verdict, call(verdict.half));
  }

  FaultEnv* const env_;
  const std::unique_ptr<File> base_;
};

struct NamedErrno {
  const char* name;
  int value;
};
constexpr NamedErrno kErrnos[] = {{"ENOSPC", ENOSPC}, {"EDQUOT", EDQUOT},       {"EIO", EIO},
                                  {"EACCES", EACCES}, {"EROFS", EROFS},         {"EMFILE", EMFILE},
                                  {"ESTALE", ESTALE}, {"ENOENT", ENOENT},       {"EINTR", EINTR},
                                  {"ENOSYS", ENOSYS}, {"ETIMEDOUT", ETIMEDOUT}, {"EAGAIN", EAGAIN}};

bool ParseAction(const std::string& text, Fault* fault) {
  using Action = Fault::Action;
  const size_t equals = text.find('=');
  const std::string word = text.substr(0, equals);
  const std::string argument = equals == std::string::npos ? "" : text.substr(equals + 1);
  fault->text = text;
  if (word == "fail" || word == "after" || word == "lose") {
    fault->action = word == "fail" ? Action::kFail : word == "after" ? Action::kAfter : Action::kLose;
    for (const NamedErrno& named : kErrnos) {
      if (argument == named.name) fault->argument = static_cast<uint64_t>(named.value);
    }
    return fault->argument != 0;
  }
  constexpr std::pair<const char*, Action> kOfANumber[] = {
      {"delay", Action::kDelay}, {"jitter", Action::kJitter}, {"jump", Action::kJump}, {"late", Action::kLate}};
  for (const auto& [name, action] : kOfANumber) {
    if (word != name) continue;
    fault->action = action;
    fault->argument = static_cast<uint64_t>(std::strtoll(argument.c_str(), nullptr, 10));
    return !argument.empty();
  }
  constexpr std::pair<const char*, Action> kPlain[] = {
      {"kill-before", Action::kKillBefore}, {"kill-after", Action::kKillAfter},
      {"kill-half", Action::kKillHalf},     {"short", Action::kShort},
      {"sigstop", Action::kStop},           {"no-memory", Action::kThrow}};
  for (const auto& [name, action] : kPlain) {
    if (text != name) continue;
    fault->action = action;
    return true;
  }
  return false;
}

bool ParseFault(const std::string& entry, Fault* fault) {
  const size_t first = entry.find(':');
  const size_t second = entry.find(':', first + 1);
  const size_t third = entry.find(':', second + 1);
  if (first == std::string::npos || second == std::string::npos || third == std::string::npos) return false;
  fault->op = entry.substr(first + 1, second - first - 1);
  fault->substring = entry.substr(second + 1, third - second - 1);
  char* end = nullptr;
  fault->nth = std::strtoull(entry.c_str() + third + 1, &end, 10);
  fault->onwards = *end == '+';
  return fault->nth > 0 && ParseAction(entry.substr(0, first), fault);
}

// Milliseconds by which a call comes late: a random number up to the most for one call of eight, 0 for the others. Each
// thread has a generator of its own.
uint64_t Jitter(uint64_t most_ms) {
  static thread_local std::mt19937_64 draw{std::random_device()()};
  return draw() % 8 == 0 ? draw() % (most_ms + 1) : 0;
}

}  // namespace

Status ParseFaults(const std::string& plan, std::vector<Fault>* faults) {
  for (size_t begin = 0; begin < plan.size();) {
    const size_t end = std::min(plan.find(',', begin), plan.size());
    const std::string entry = plan.substr(begin, end - begin);
    Fault fault;
    if (!ParseFault(entry, &fault))
      return Status(Code::kInvalid, "no fault of the form ACTION:OP:SUBSTRING:NTH: " + entry);
    faults->push_back(fault);
    begin = end + 1;
  }
  return {};
}

FaultEnv::FaultEnv(Env* base, std::vector<Fault> faults, std::string log)
    : base_(base), log_(std::move(log)), faults_(std::move(faults)) {}

FaultEnv::Verdict FaultEnv::Before(const char* op, const std::string& path) {
  using Action = Fault::Action;
  Verdict verdict;
  std::vector<Fault> hits;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Fault& fault : faults_) {
      if ((fault.op != op && fault.op != "*") || path.find(fault.substring) == std::string::npos) continue;
      ++fault.seen;
      if (fault.seen == fault.nth || (fault.onwards && fault.seen > fault.nth)) hits.push_back(fault);
    }
  }
  for (const Fault& fault : hits) {
    const std::string line = fault.text + " " + op + " " + path;
    const bool halves = std::strcmp(op, "pwrite") == 0 || std::strcmp(op, "pread") == 0;
    switch (fault.action) {
      case Action::kLose:
        verdict.lose = true;
        [[fallthrough]];
      case Action::kFail:
        verdict.fail = Status::FromErrno(static_cast<int>(fault.argument), op, path);
        break;
      case Action::kAfter:
        verdict.after = Status::FromErrno(static_cast<int>(fault.argument), op, path);
        break;
      case Action::kDelay:
        Log(line);
        base_->SleepMillis(fault.argument);
        break;
      case Action::kJitter:
        base_->SleepMillis(Jitter(fault.argument));
        break;
      case Action::kLate:
        late_us_ += fault.argument * 1000000;
        break;
      case Action::kJump:
        verdict.jump = static_cast<int64_t>(fault.argument);
        break;
      case Action::kStop:
        Log(line);
        raise(SIGSTOP);
        break;
      case Action::kThrow:
        throw std::bad_alloc();
      case Action::kShort:
        verdict.half = halves;
        break;
      case Action::kKillHalf:
        if (!halves) Kill(line);
        verdict.half = true;
        verdict.kill_after = line;
        break;
      case Action::kKillAfter:
        verdict.kill_after = line;
        break;
      case Action::kKillBefore:
        Kill(line);
    }
  }
  return verdict;
}

Status FaultEnv::After(const Verdict& verdict, const Status& status) {
  if (!verdict.kill_after.empty()) Kill(verdict.kill_after);
  return status.ok() ? verdict.after : status;
}

void FaultEnv::Heal() {
  std::lock_guard<std::mutex> lock(mutex_);
  faults_.clear();
}

uint64_t FaultEnv::seen() {
  std::lock_guard<std::mutex> lock(mutex_);
  return faults_.empty() ? 0 : faults_.front().seen;
}

void FaultEnv::Wrote(const std::string& path, uint64_t offset, uint64_t n) {
  std::lock_guard<std::mutex> lock(mutex_);
  last_writes_.push_back({path, offset, n});
  if (last_writes_.size() > kRemembered) last_writes_.pop_front();
}

void FaultEnv::Lose(File* file) {
  Write last{};
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto at = std::find_if(last_writes_.rbegin(), last_writes_.rend(),
                                 [&](const Write& write) { return write.path == file->path(); });
    if (at != last_writes_.rend()) last = *at;
  }
  const std::string zeros(last.size, '\0');
  (void)WriteFull(file, last.offset, zeros.data(), zeros.size()).ok();
}

void FaultEnv::Kill(const std::string& line) {
  Log(line);
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();  // until the signal is delivered
}

void FaultEnv::Log(const std::string& line) {
  if (log_.empty()) return;
  const std::lock_guard<std::mutex> lock(log_mutex_);
  std::unique_ptr<File> file;
  uint64_t size = 0;
  const std::string text = line + "\n";
  const bool written = base_->Open(log_, OpenMode::kUpdate, &file).ok() && file->Size(&size).ok() &&
                       WriteFull(file.get(), size, text.data(), text.size()).ok();
  if (!written) std::abort();  // a test that counts on the log must not pass without it
}

Status FaultEnv::Open(const std::string& path, OpenMode mode, std::unique_ptr<File>* file) {
  const Verdict verdict = Before("open", path);
  DF_RETURN_IF_ERROR(verdict.fail);
  std::unique_ptr<File> opened;
  DF_RETURN_IF_ERROR(base_->Open(path, mode, &opened));
  DF_RETURN_IF_ERROR(After(verdict, Status()));
  *file = std::make_unique<FaultFile>(this, std::move(opened));
  return {};
}

#define DF_AROUND(op, path, call)           \
  const Verdict verdict = Before(op, path); \
  DF_RETURN_IF_ERROR(verdict.fail);         \
  return After(verdict, base_->call)

Status FaultEnv::Stat(const std::string& path, FileInfo* info) { DF_AROUND("stat", path, Stat(path, info)); }
Status FaultEnv::List(const std::string& path, std::vector<std::string>* names, bool* exists) {
  DF_AROUND("list", path, List(path, names, exists));
}
Status FaultEnv::Rename(const std::string& from, const std::string& to) {
  DF_AROUND("rename", from + " to " + to, Rename(from, to));
}
Status FaultEnv::MakeDir(const std::string& path, uint32_t mode) { DF_AROUND("mkdir", path, MakeDir(path, mode)); }
Status FaultEnv::Unlink(const std::string& path) { DF_AROUND("unlink", path, Unlink(path)); }
Status FaultEnv::RemoveDir(const std::string& path) { DF_AROUND("rmdir", path, RemoveDir(path)); }
Status FaultEnv::Refresh(const std::string& directory) { DF_AROUND("refresh", directory, Refresh(directory)); }
Status FaultEnv::SyncDir(const std::string& path) { DF_AROUND("fsync_dir", path, SyncDir(path)); }

#undef DF_AROUND

}  // namespace deepfreeze
