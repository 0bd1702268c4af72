#include "engine/engine.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "base/copy.h"
#include "base/thread.h"
#include "deepfreeze/deepfreeze.h"
#include "engine/checksum.h"
#include "engine/external.h"
#include "engine/local_write.h"
#include "format/named_values.h"
#include "store/node_meeting.h"
#include "store/posix_store.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kForEver = ~uint64_t{0};
constexpr uint64_t kNodePatienceUs = 5000000;  // or an eighth of the time-out, if that is less
constexpr uint64_t kHeldUpUs = 100;            // a call that takes less has not waited
constexpr double kCoreForSums = 0.5;  // idle cores in whose time the engine can compute the checksums of captures

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

// env: of the node's page, which is no part of the store and is not counted as one.
std::unique_ptr<Meeting> Meet(const Options& options, Env* env, Store* store) {
  std::unique_ptr<Meeting> meeting = store->Meet(options.identity);
  if (options.node.size() < 2 || options.node_dir.empty()) return meeting;
  const uint64_t patience_us = std::min(kNodePatienceUs, options.commit_timeout_ms * 1000 / 8);
  return std::make_unique<NodeMeeting>(std::move(meeting), env, options.identity, options.node_dir, options.node,
                                       patience_us);
}

TableOptions ToTable(const Options& options, const std::vector<LevelEntry>& entries, bool slots_are_memory,
                     const ThreadClocks* clocks) {
  TableOptions table{options.in_flight, options.slots, !options.local_dir.empty(), options.uncommitted};
  table.one_memory = options.one_memory;
  table.slots_are_memory = slots_are_memory;
  table.clocks = clocks;
  table.levels = {kLevelRows[kCaptured]};
  for (const LevelEntry& entry : entries) table.levels.push_back(entry.row);
  return table;
}

}  // namespace

// The levels of every engine, in the order of their numbers.
std::vector<LevelEntry> Engine::Entries(const std::vector<LevelEntry>& more) {
  LevelRow external = kLevelRows[kExternal];
  for (StageRow& stage : external.stages) stage.threads = options_.transfers;
  std::vector<LevelEntry> entries{
      {kLevelRows[kLocal], [](const StageContext& context) { return std::make_unique<LocalWriter>(context); }},
      {external, [this](const StageContext& context) { return std::make_unique<External>(context, remover_.get()); }}};
  entries.insert(entries.end(), more.begin(), more.end());
  return entries;
}

Engine::Engine(const Options& options, Env* env, std::unique_ptr<Store> store, const std::vector<LevelEntry>& more)
    : options_(options),
      env_(env, options.local_dir, &counters_),
      store_(store != nullptr ? std::move(store)
                              : std::make_unique<PosixStore>(&env_, options.run_dir, options.cached)),
      meeting_(Meet(options_, env, store_.get())),
      entries_(Entries(more)),
      table_(&env_, ToTable(options, entries_, !options.local_dir.empty() && env->InMemory(options.local_dir),
                            &counters_.threads)),
      progress_(options_, &env_, &table_, meeting_.get()),
      slots_(options.local_dir.empty()
                 ? nullptr
                 : std::make_unique<SlotStore>(&env_, options.local_dir, options.identity, options.slots)),
      idle_cores_(CoresOfEach(env->Cores(), options.node.size()), env->NowMicros(), env->CpuMicros()) {
  const BlockSignals block_signals;
  pool_ = std::make_unique<WorkerPool>(options.writers, options.nice, &counters_.threads);
  const StageContext context{options_,       &env_,       &table_,    &upkeep_,   slots_.get(), store_.get(),
                             meeting_.get(), pool_.get(), &progress_, &counters_, &log_};
  capture_memory_ = std::make_unique<CaptureMemory>(context);
  remover_ = std::make_unique<Remover>(context);
  for (const LevelEntry& entry : entries_) levels_.push_back(entry.make(context));
  try {
    for (LevelId id = kLocal; id <= entries_.size(); ++id) {
      if (id == kLocal && slots_ == nullptr) continue;
      for (size_t stage = 0; stage < kMostStages; ++stage) {
        const StageRow& row = entries_[id - 1].row.stages[stage];
        for (size_t n = 0; n < row.threads; ++n) Start(row.thread, [this, id, stage] { Work(id, stage); });
      }
    }
    if (options_.identity.rank == 0) Start("df-retention", [this] { remover_->Run(); });
  } catch (...) {  // the system refuses another thread
    Stop(kForEver, nullptr);
    throw;
  }
}

void Engine::Start(const char* name, std::function<void()> body) {
  threads_.push_back(Thread{name, false, {}});
  Thread* thread = &threads_.back();
  try {
    thread->thread = std::thread([this, thread, body = std::move(body)] {
      BecomeBackgroundThread(thread->name, options_.nice);
      const ThreadClocks::Running clock(&counters_.threads, thread->name);
      body();
      const MutexLock lock(&mutex_);
      thread->ended = true;
      thread_ended_.NotifyAll();
    });
  } catch (...) {
    threads_.pop_back();
    throw;
  }
}

void Engine::Work(LevelId id, size_t stage) {
  Level* level = levels_[id - 1].get();
  while (const JobRef job = table_.Next(id, stage)) {
    Status status = Contained([&] { return level->Protect(job, stage); });
    if (status.code() == Code::kClosed) return;
    if (id == kExternal && (!status.ok() || entries_[id - 1].row.IsLast(stage))) {
      BestEffort([&] { meeting_->Ended(job->step, status.ok()); });
    }
    if (!status.ok()) {
      table_.Fail(job, id, std::move(status));
      continue;
    }
    // Before the caller can hear of the commit and ask for removals.
    if (id == kExternal && entries_[id - 1].row.IsLast(stage)) {
      for (const std::unique_ptr<Level>& each : levels_) each->Release(job);
    }
    table_.Finish(job, id);
  }
}

Engine::~Engine() {
  Stop(kForEver, nullptr);
  if (slots_ == nullptr) return;
  for (const uint32_t slot : table_.IdleSlots()) slots_->Remove(slot);
}

bool Engine::Stop(uint64_t timeout_ms, std::string* where) {
  table_.Stop();
  upkeep_.Stop();
  if (!AwaitThreads(timeout_ms / 2)) {
    remover_->LeaveTheRest();  // a long list of removals is no store that hangs
    if (!AwaitThreads(timeout_ms - timeout_ms / 2)) {
      const MutexLock lock(&mutex_);
      for (const Thread& thread : threads_) {
        if (!thread.ended) *where += (where->empty() ? "" : ", ") + std::string(thread.name);
      }
      return false;
    }
  }
  capture_memory_->Stop();
  for (Thread& thread : threads_) thread.thread.join();
  threads_.clear();
  return true;
}

bool Engine::AwaitThreads(uint64_t timeout_ms) {
  const MutexLock lock(&mutex_);
  const auto deadline = Deadline(timeout_ms);
  const auto ended = [](const Thread& thread) { return thread.ended; };
  bool in_time = true;
  while (in_time && !std::all_of(threads_.begin(), threads_.end(), ended)) {
    in_time = thread_ended_.WaitUntil(&mutex_, deadline);
  }
  return std::all_of(threads_.begin(), threads_.end(), ended);
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

Status CheckNewer(const char* call, int64_t step, int64_t by) {
  if (by > step) return {};
  return Status(Code::kInvalid,
                std::string(call) + ": step " + std::to_string(by) + " is not newer than step " + std::to_string(step));
}

// most: with how many of them the engine was opened.
Status CheckTuned(const char* name, uint64_t number, uint64_t most) {
  if (number >= 1 && number <= most) return {};
  return Status::FourPart(Code::kInvalid, std::string("tune: ") + name,
                          "1 to " + std::to_string(most) + ", as many as the engine was opened with",
                          std::to_string(number), "Correct the number, or open the engine with more");
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

Status Engine::Reserve(uint64_t timeout_ms, char** base) {
  const CountedTime time(&env_, &counters_.waits, &counters_.wait_us, kHeldUpUs);
  return capture_memory_->Obtain(timeout_ms, base);
}

template <typename Call>
Status Engine::WhileMoving(uint64_t timeout_ms, const Call& wait) {
  Status status = wait(timeout_ms);
  while (status.code() == Code::kTimeout) {
    const uint64_t idle_ms = IdleMs();
    if (idle_ms >= timeout_ms) break;
    status = wait(timeout_ms - idle_ms);
  }
  return status;
}

Status Engine::AwaitMemory(uint64_t timeout_ms, char** base) {
  Status status = WhileMoving(timeout_ms, [&](uint64_t ms) { return Reserve(ms, base); });
  copy_ns_ = 0;  // of a capture that nobody has submitted
  return status;
}

Status Engine::AwaitParts(const char* data, uint64_t n, uint64_t timeout_ms) {
  Status status = table_.TakeParts(data, n, 0);
  if (status.code() != Code::kTimeout) return status;
  // The threads of a capture wait side by side. Their time counts once.
  std::optional<CountedTime> time;
  if (parts_wanted_++ == 0) time.emplace(&env_, &counters_.waits, &counters_.wait_us, kHeldUpUs);
  status = WhileMoving(timeout_ms, [&](uint64_t ms) { return table_.TakeParts(data, n, ms); });
  --parts_wanted_;
  return status;
}

bool Engine::SumsInCopy() {
  // Asked each time, so that the next answer is about the time from now on.
  const double idle = idle_cores_.Average(env_.NowMicros(), env_.CpuMicros());
  return HasOnePass() && (local_awaited_ || idle < kCoreForSums);
}

Status Engine::Wait(int64_t step, int level, uint64_t timeout_ms) {
  if (level == DF_LOCAL) local_awaited_ = true;
  return table_.Wait(step, level, timeout_ms);
}

std::vector<Report> Engine::Poll(size_t capacity) {
  std::vector<Report> reports = table_.Poll(capacity);
  for (std::string& line : log_.Take(capacity - reports.size())) {
    reports.emplace_back();
    reports.back().level = DF_INFORMS;
    reports.back().message = std::move(line);
  }
  return reports;
}

Status Engine::Drain(uint64_t timeout_ms) {
  const auto deadline = Deadline(timeout_ms);
  DF_RETURN_IF_ERROR(table_.Drain(deadline));
  if (upkeep_.AwaitUntil(deadline)) return {};
  if (table_.stopping()) return Status(Code::kClosed, "the engine is shutting down");
  return Status(Code::kTimeout, "older checkpoints are being removed");
}

Status Engine::Remove(const std::vector<int64_t>& steps) {
  if (options_.identity.rank != 0) return Status(Code::kInvalid, "remove: rank 0 alone removes checkpoints");
  if (!steps.empty()) {
    upkeep_.AskRemoval(steps);
  } else if (options_.bounded) {
    upkeep_.AskTidy();
  }
  return {};
}

Status Engine::Tune(const Tuning& to) {
  DF_RETURN_IF_ERROR(CheckTuned("writers", to.writers, options_.writers));
  DF_RETURN_IF_ERROR(CheckTuned("transfers", to.transfers, options_.transfers));
  const uint64_t opened = options_.uncommitted;
  if (to.uncommitted > 0 && opened > 0) DF_RETURN_IF_ERROR(CheckTuned("uncommitted", to.uncommitted, opened));
  const MutexLock lock(&tuning_);
  pool_->SetLimit(to.writers);
  table_.Tune(to.transfers, to.uncommitted > 0 ? to.uncommitted : opened);
  return {};
}

Status Engine::Supersede(int64_t step, int64_t by) {
  if (options_.identity.rank != 0) return Status(Code::kInvalid, "supersede: rank 0 alone does this");
  DF_RETURN_IF_ERROR(CheckNewer("supersede", step, by));
  // Without a durable newer one the older one is still needed.
  if (!upkeep_.Held()) table_.Supersede(step, by);
  return {};
}

Status Engine::Replace(int64_t step, int64_t by) {
  DF_RETURN_IF_ERROR(CheckNewer("replace", step, by));
  if (table_.Replace(step, by)) return {};
  return Status(Code::kInvalid, "replace: step " + std::to_string(step) + " is not held");
}

Status Engine::Fail(int64_t step, const std::string& message) {
  const std::string where = "step " + std::to_string(step);
  if (step < 0) return Status(Code::kInvalid, where + ": steps are 0 or more");
  auto job = std::make_shared<Job>();
  job->step = step;
  job->lost = Status(Code::kIncomplete, message);
  return table_.Submit(job, false, 0);
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
  const Reservation reserved = table_.reserved();
  bool captured = false;
  for (const Region& region : regions) {
    if (region.data == nullptr && region.size > 0) {
      return Status::FourPart(
          Code::kInvalid, where, "an address for every region",
          "none for " + std::to_string(region.size) + " bytes at " + std::to_string(region.file_offset),
          "Correct the regions");
    }
    captured = captured || reserved.span.Holds(region.data);
  }
  // A capture lies in the places of the plan. With other regions, the place of one region in the slot could overlap the
  // bytes of another one.
  if (captured && !(SameRegions(regions, planned_) && private_data.size() == planned_private_)) {
    return Status::FourPart(Code::kInvalid, where, "the regions and private bytes that were planned", "others",
                            "Submit what was planned");
  }
  const CountedTime time(&env_, &counters_.waits, &counters_.wait_us, kHeldUpUs);
  if (captured) DF_RETURN_IF_ERROR(table_.AwaitWhole(timeout_ms));
  auto job = std::make_shared<Job>();
  job->step = step;
  job->nbytes = nbytes;
  job->regions = std::move(regions);
  job->private_data = std::move(private_data);
  job->values = std::move(values);
  job->memory = std::move(memory);
  CutExtents(job.get(), options_.chunk_bytes);
  job->layout = LayOutSlot(job->extents, job->private_data.size());
  if (captured) captured_sums_.GiveTo(job.get());
  if (captured) job->copy_s = static_cast<double>(copy_ns_.exchange(0)) * 1e-9;
  if (captured && reserved.home == Home::kBuffer) {
    job->parts = BufferParts(reserved.span, job->extents, job->sources);
    OrderRuns(job.get(), reserved.span, reserved.order);
  }
  return table_.Submit(job, captured, timeout_ms);
}

}  // namespace deepfreeze
