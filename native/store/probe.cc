#include "store/probe.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

#include "base/mutex.h"
#include "base/pages.h"
#include "base/worker_pool.h"
#include "format/names.h"

namespace deepfreeze {
namespace {

constexpr int kRounds = 3;  // the best one of each way counts; the first has a chunk alone, for the store may be slow
constexpr double kMicro = 1e6;

// Two descriptors of one file, of which the name is gone.
struct Files {
  std::unique_ptr<File> cached;
  std::unique_ptr<File> direct;  // null if the file system can't do that
};

Status OpenBoth(Env* env, const std::string& path, Files* files) {
  DF_RETURN_IF_ERROR(env->Open(path, OpenMode::kNew, &files->cached));
  if (!env->Open(path, OpenMode::kDirect, &files->direct).ok()) files->direct.reset();
  return env->Unlink(path);
}

class Writer {
 public:
  Writer(Env* env, uint32_t threads, uint64_t chunk_bytes, uint64_t end_us)
      : env_(env), chunk_bytes_(chunk_bytes), end_us_(end_us), pool_(threads, 0) {}

  // Writes n bytes from `offset` on, or fewer if the time is over, and makes them durable. *rate: bytes per second; it
  // stays as it is if nothing was written.
  Status Write(File* file, bool direct, const char* from, uint64_t offset, uint64_t n, double* rate) {
    const uint64_t begin_us = env_->NowMicros();
    std::atomic<uint64_t> written{0};
    Mutex mutex;
    Status first;
    pool_.Run(n / chunk_bytes_, pool_.threads(), false, [&](size_t, size_t i) {
      if (env_->NowMicros() >= end_us_) return false;
      const uint64_t at = offset + i * chunk_bytes_;
      Status status = WriteFull(file, at, from, chunk_bytes_);
      if (status.ok() && !direct) file->StartWriteback(at, chunk_bytes_);
      if (status.ok()) {
        written += chunk_bytes_;
        return true;
      }
      const MutexLock lock(&mutex);
      if (first.ok()) first = std::move(status);
      return false;
    });
    DF_RETURN_IF_ERROR(first);
    DF_RETURN_IF_ERROR(file->DataSync());
    const uint64_t took_us = std::max<uint64_t>(1, env_->NowMicros() - begin_us);
    if (written > 0) *rate = std::max(*rate, static_cast<double>(written) / static_cast<double>(took_us) * kMicro);
    return {};
  }

 private:
  Env* const env_;
  const uint64_t chunk_bytes_;
  const uint64_t end_us_;
  WorkerPool pool_;
};

}  // namespace

Status ProbeStore(Env* env, const std::string& directory, uint32_t threads, uint64_t bytes, uint64_t chunk_bytes,
                  uint64_t budget_ms, Rates* rates) {
  const uint64_t end_us = env->NowMicros() + budget_ms * 1000;
  Files files;
  // No other process has this name: a job that was killed here, before the name was gone, may have left it.
  const std::string path = Join(directory, ".probe-" + std::to_string(env->ProcessId()));
  DF_RETURN_IF_ERROR(env->Unlink(path));
  DF_RETURN_IF_ERROR(OpenBoth(env, path, &files));
  const std::shared_ptr<Pages> source = Pages::Allocate(env, chunk_bytes);
  if (source == nullptr) return Status(Code::kIo, "no memory for a chunk");
  std::memset(source->data(), 0x5a, chunk_bytes);  // a store may keep zeros as holes
  const uint64_t part = std::max(chunk_bytes, (bytes / 2 - chunk_bytes) / (kRounds - 1) / chunk_bytes * chunk_bytes);
  DF_RETURN_IF_ERROR(files.cached->Allocate(2 * (chunk_bytes + (kRounds - 1) * part)));
  Writer writer(env, threads, chunk_bytes, end_us);
  Rates found;
  uint64_t offset = 0;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t n = round == 0 ? chunk_bytes : part;
    const uint64_t begin_us = env->NowMicros();
    if (files.direct != nullptr) {
      DF_RETURN_IF_ERROR(writer.Write(files.direct.get(), true, source->data(), offset, n, &found.direct));
      if (!files.direct->Direct()) found.direct = 0;  // it has gone through the page cache
    }
    offset += n;
    DF_RETURN_IF_ERROR(writer.Write(files.cached.get(), false, source->data(), offset, n, &found.cached));
    offset += n;
    // The next round may write more, and would take longer than there is time.
    if ((env->NowMicros() - begin_us) * (part / n) > budget_ms * 1000) break;
  }
  *rates = found;
  return {};
}

}  // namespace deepfreeze
