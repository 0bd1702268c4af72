#include "engine/engine.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/thread.h"
#include "engine/checksum.h"
#include "format/named_values.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kForEver = ~uint64_t{0};

// While an object of this class lives, new threads begin with all signals blocked. So the handlers of the program that
// uses the engine run on that program's threads.
class BlockSignals {
 public:
  BlockSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~BlockSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

Engine::Engine(const Options& options, Env* env)
    : options_(options),
      table_(env, options.in_flight, options.slots, !options.local_dir.empty()),
      progress_(options_, env, &table_),
      slots_(options.local_dir.empty()
                 ? nullptr
                 : std::make_unique<SlotStore>(env, options.local_dir, options.identity, options.slots)),
      meeting_(env, options.run_dir, options.identity) {
  const BlockSignals block_signals;
  pool_ = std::make_unique<WorkerPool>(options.writers, options.nice);
  const StageContext context{options_, env, &table_, slots_.get(), &meeting_, pool_.get(), &progress_};
  capture_memory_ = std::make_unique<CaptureMemory>(context);
  retention_ = std::make_unique<Retention>(context);
  local_writer_ = std::make_unique<LocalWriter>(context);
  transfer_ = std::make_unique<Transfer>(context, retention_.get());
  publisher_ = std::make_unique<Publisher>(context, retention_.get());
  committer_ = std::make_unique<Committer>(context);
  try {
    if (slots_ != nullptr) Start("df-local", local_writer_.get());
    Start("df-transfer", transfer_.get());
    Start("df-publish", publisher_.get());
    Start("df-commit", committer_.get());
    if (options_.identity.rank == 0) Start("df-retention", retention_.get());
  } catch (...) {  // the system refuses another thread
    Stop(kForEver, nullptr);
    throw;
  }
}

template <typename Stage>
void Engine::Start(const char* name, Stage* stage) {
  threads_.push_back(Thread{name, false, {}});
  Thread* thread = &threads_.back();
  try {
    thread->thread = std::thread([this, thread, stage] {
      BecomeBackgroundThread(thread->name, options_.nice);
      stage->Run();
      std::lock_guard<std::mutex> lock(mutex_);
      thread->ended = true;
      thread_ended_.notify_all();
    });
  } catch (...) {
    threads_.pop_back();
    throw;
  }
}

Engine::~Engine() {
  Stop(kForEver, nullptr);
  if (slots_ == nullptr) return;
  for (const uint32_t slot : table_.IdleSlots()) slots_->Remove(slot);
}

bool Engine::Stop(uint64_t timeout_ms, std::string* where) {
  table_.Stop();
  {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto ended = [this] {
      return std::all_of(threads_.begin(), threads_.end(), [](const Thread& thread) { return thread.ended; });
    };
    const auto all_ended = [&](uint64_t ms) {
      return thread_ended_.wait_for(lock, std::chrono::milliseconds(ms), ended);
    };
    if (timeout_ms == kForEver) {
      thread_ended_.wait(lock, ended);
    } else if (!all_ended(timeout_ms / 2)) {
      retention_->LeaveTheRest();  // a long list of removals is no store that hangs
      if (!all_ended(timeout_ms - timeout_ms / 2)) {
        for (const Thread& thread : threads_) {
          if (!thread.ended) *where += (where->empty() ? "" : ", ") + std::string(thread.name);
        }
        return false;
      }
    }
  }
  capture_memory_->Stop();
  for (Thread& thread : threads_) thread.thread.join();
  threads_.clear();
  return true;
}

namespace {

Status CheckRegions(const std::vector<Region>& regions, uint64_t file_size, const std::string& where,
                    uint64_t* nbytes) {
  uint64_t end = 0;
  *nbytes = 0;
  std::vector<Extent> extents;
  extents.reserve(regions.size());
  for (const Region& region : regions) {
    if (region.file_offset < end || region.file_offset > file_size || region.size > file_size - region.file_offset) {
      return Status::FourPart(Code::kInvalid, where,
                              "sorted regions inside a file of " + std::to_string(file_size) + " bytes",
                              std::to_string(region.size) + " bytes at " + std::to_string(region.file_offset) +
                                  " after byte " + std::to_string(end),
                              "Correct the regions");
    }
    end = region.file_offset + region.size;
    *nbytes += region.size;
    extents.push_back(Extent{region.file_offset, region.size, 0});
  }
  return CheckWholePages(extents, file_size, where);
}

// Refuses a part that does not fit into a rank's record. Otherwise it would be written in full and published, and no
// reader would accept the record. The largest record also bounds the number of extents, which has 32 bits.
Status CheckRecord(const Options& options, const std::vector<Region>& regions, uint64_t private_size,
                   uint64_t values_size, const std::string& where) {
  uint64_t extents = 0;
  for (const Region& region : regions) extents += CountExtents(region.size, options.chunk_bytes);
  uint64_t size = 0;
  if (!RecordSize(extents, private_size, values_size, &size)) {
    return Status::FourPart(Code::kInvalid, where,
                            "extents, private bytes and named values of a rank that fit into a record of " +
                                std::to_string(kMaxRecordSize) + " bytes",
                            std::to_string(extents) + " extents, " + std::to_string(private_size) +
                                " private bytes and " + std::to_string(values_size) + " bytes of values",
                            "Keep less in private bytes and values, or raise chunk_bytes");
  }
  const uint64_t checksums = uint64_t{options.identity.hashes} * 4;
  if (private_size < checksums) {
    return Status::FourPart(Code::kInvalid, where,
                            std::to_string(checksums) + " private bytes or more, for the checksums at their end",
                            std::to_string(private_size), "Correct the private bytes, or hashes");
  }
  return {};
}

bool SameRegions(const std::vector<Region>& left, const std::vector<Region>& right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](const Region& a, const Region& b) {
    return a.file_offset == b.file_offset && a.size == b.size;
  });
}

}  // namespace

Status Engine::Plan(const std::vector<Region>& regions, uint64_t private_size, uint64_t side_size, CapturePlan* plan) {
  uint64_t nbytes = 0;
  DF_RETURN_IF_ERROR(CheckRegions(regions, options_.identity.file_size, "plan", &nbytes));
  DF_RETURN_IF_ERROR(CheckRecord(options_, regions, private_size, 0, "plan"));
  DF_RETURN_IF_ERROR(capture_memory_->Plan(regions, private_size, side_size, plan));
  planned_ = regions;
  planned_private_ = private_size;
  return {};
}

Status Engine::ReserveWhileMoving(uint64_t timeout_ms, char** base) {
  Status status = Reserve(timeout_ms, base);
  while (status.code() == Code::kTimeout) {
    const uint64_t idle_ms = IdleMs();
    if (idle_ms >= timeout_ms) break;
    status = Reserve(timeout_ms - idle_ms, base);
  }
  return status;
}

Status Engine::Remove(std::vector<int64_t> steps) {
  if (options_.identity.rank != 0) return Status(Code::kInvalid, "remove: rank 0 alone removes checkpoints");
  table_.AskRemoval(std::move(steps));
  return {};
}

Status Engine::Fail(int64_t step, const std::string& message) {
  const std::string where = "step " + std::to_string(step);
  if (step < 0) return Status(Code::kInvalid, where + ": steps are 0 or more");
  auto job = std::make_shared<Job>();
  job->step = step;
  job->lost = Status(Code::kIncomplete, message);
  return table_.Submit(std::move(job), false, 0);
}

Status Engine::Submit(int64_t step, std::vector<Region> regions, std::string private_data, uint64_t timeout_ms,
                      std::vector<std::shared_ptr<Pages>> memory, std::string values) {
  const std::string where = "step " + std::to_string(step);
  if (step < 0) return Status(Code::kInvalid, where + ": steps are 0 or more");
  uint64_t nbytes = 0;
  DF_RETURN_IF_ERROR(CheckRegions(regions, options_.identity.file_size, where, &nbytes));
  DF_RETURN_IF_ERROR(CheckRecord(options_, regions, private_data.size(), values.size(), where));
  const Status section = CheckNamedValues(values, where);
  if (!section.ok()) return Status(Code::kInvalid, section.message());
  bool captured = false;
  for (const Region& region : regions) {
    if (region.data == nullptr && region.size > 0) {
      return Status::FourPart(
          Code::kInvalid, where, "an address for every region",
          "none for " + std::to_string(region.size) + " bytes at " + std::to_string(region.file_offset),
          "Correct the regions");
    }
    captured = captured || table_.InReserved(region.data);
  }
  // A capture lies in the places of the plan. With other regions, the place of one region in the slot could overlap the
  // bytes of another one.
  if (captured && !(SameRegions(regions, planned_) && private_data.size() == planned_private_)) {
    return Status::FourPart(Code::kInvalid, where, "the regions and private bytes that were planned", "others",
                            "Submit what was planned");
  }
  auto job = std::make_shared<Job>();
  job->step = step;
  job->nbytes = nbytes;
  job->regions = std::move(regions);
  job->private_data = std::move(private_data);
  job->values = std::move(values);
  job->memory = std::move(memory);
  CutExtents(job.get(), options_.chunk_bytes);
  return table_.Submit(std::move(job), captured, timeout_ms);
}

}  // namespace deepfreeze
