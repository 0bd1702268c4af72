// The part of the table that the engine's caller uses: the calls that wait for a bounded time, and the reports.
#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "engine/job_table.h"

namespace deepfreeze {
namespace {

constexpr size_t kRemembered = 1024;
constexpr uint64_t kLongestWaitMs = uint64_t{1000} * 3600 * 24 * 365;  // keeps deadlines from overflowing

std::chrono::steady_clock::time_point Deadline(uint64_t ms) {
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(std::min(ms, kLongestWaitMs));
}

std::string StepText(int64_t step) { return "step " + std::to_string(step); }

Status Closed() { return Status(Code::kClosed, "the engine is shutting down"); }

}  // namespace

Status JobTable::Submit(JobRef job, bool captured, uint64_t timeout_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto deadline = Deadline(timeout_ms);
  if (stopping_) return Closed();
  ForgetLocked();
  if (job->step <= newest_submitted_) {
    return Status(Code::kInvalid,
                  StepText(job->step) + " was submitted after " + StepText(newest_submitted_) + ": steps must grow");
  }
  if (!job->lost.ok()) {
    job->released = true;
  } else if (captured) {
    TakeReservedLocked(job);
  } else {
    ++memory_wanted_;
    ReleaseWantedLocked();
    const bool room = changed_.wait_until(lock, deadline, [&] { return stopping_ || RoomLocked(); });
    --memory_wanted_;
    if (stopping_) return Closed();
    if (!room) {
      return Status(Code::kTimeout,
                    StepText(job->step) + ": no memory for a checkpoint in flight: " + DescribeAllLocked());
    }
  }
  newest_submitted_ = job->step;
  job->submitted_us = env_->NowMicros();
  job->phase = job->home_is_slot || !job->lost.ok() ? Phase::kForTransfer : first_phase_;
  jobs_[job->step] = std::move(job);
  changed_.notify_all();
  return {};
}

void JobTable::TakeReservedLocked(const JobRef& job) {
  job->home = reserved_->home;
  job->home_is_slot = reserved_->home_is_slot;
  job->slot = reserved_->slot;
  job->buffer = reserved_->buffer;
  if (job->slot >= 0) slot_jobs_[static_cast<size_t>(job->slot)] = job;
  if (job->buffer >= 0) buffer_jobs_[static_cast<size_t>(job->buffer)] = job;
  reserved_ = nullptr;
}

Status JobTable::Reserve(uint64_t timeout_ms, const std::function<bool(const JobRef&)>& take) {
  std::unique_lock<std::mutex> lock(mutex_);
  auto job = std::make_shared<Job>();
  job->phase = Phase::kForCapture;
  ++memory_wanted_;
  ReleaseWantedLocked();
  const bool taken = changed_.wait_until(lock, Deadline(timeout_ms), [&] { return stopping_ || take(job); });
  --memory_wanted_;
  if (stopping_) return Closed();
  if (!taken) {
    return Status(Code::kTimeout, "no memory for it: " + DescribeAllLocked());
  }
  reserved_ = job;
  return {};
}

Status JobTable::ReserveSlot(uint64_t timeout_ms, uint32_t* slot) {
  bool given_up = false;
  DF_RETURN_IF_ERROR(Reserve(timeout_ms, [&](const JobRef& job) {
    // The slots of a dropped local tier are removed right afterwards, so no capture may take one of them any more.
    given_up = !local_tier_;
    if (given_up || !TakeSlotLocked(job)) return given_up;
    job->home_is_slot = true;
    *slot = static_cast<uint32_t>(job->slot);
    return true;
  }));
  if (!given_up) return {};
  Unreserve();
  return Status(Code::kIo, "the local tier was given up");
}

Status JobTable::ReserveBuffer(uint64_t timeout_ms, uint32_t* buffer) {
  return Reserve(timeout_ms, [&](const JobRef& job) {
    if (!RoomLocked()) return false;
    const auto free = std::find(buffer_jobs_.begin(), buffer_jobs_.end(), nullptr);
    if (free == buffer_jobs_.end()) return false;
    *free = job;
    job->buffer = static_cast<int>(free - buffer_jobs_.begin());
    *buffer = static_cast<uint32_t>(job->buffer);
    return true;
  });
}

uint32_t JobTable::Room(bool in_slots) const {
  std::lock_guard<std::mutex> lock(mutex_);
  if (in_slots) {
    return static_cast<uint32_t>(std::count_if(slot_jobs_.begin(), slot_jobs_.end(), [](const JobRef& owner) {
      return owner == nullptr || (owner->phase == Phase::kFailed && !owner->busy());
    }));
  }
  // A checkpoint that is whole on the local tier is not counted: it gives its memory up when a capture needs it.
  uint32_t held = reserved_ != nullptr && reserved_->in_flight() ? 1 : 0;
  for (const auto& [step, job] : jobs_) held += job->in_flight() && !job->on_slot ? 1 : 0;
  return std::min(in_flight_ - std::min(in_flight_, held), BacklogRoomLocked());
}

void JobTable::Bind(char* base, uint64_t size) {
  std::lock_guard<std::mutex> lock(mutex_);
  reserved_->home = base;
  reserved_->home_size = size;
}

void JobTable::Unreserve() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (reserved_->slot >= 0) slot_jobs_[static_cast<size_t>(reserved_->slot)] = nullptr;
  if (reserved_->buffer >= 0) buffer_jobs_[static_cast<size_t>(reserved_->buffer)] = nullptr;
  reserved_ = nullptr;
  changed_.notify_all();
}

char* JobTable::Reserved() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return reserved_ == nullptr ? nullptr : reserved_->home;
}

bool JobTable::InReserved(const char* data) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return reserved_ != nullptr && reserved_->home != nullptr && data >= reserved_->home &&
         data < reserved_->home + reserved_->home_size;
}

Status JobTable::Wait(int64_t step, int level, uint64_t timeout_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto found = jobs_.find(step);
  if (found == jobs_.end()) {
    const auto old = forgotten_.find(step);
    if (old != forgotten_.end()) return old->second;
    return Status(Code::kInvalid, StepText(step) + " was never submitted, or ended long ago");
  }
  const JobRef job = found->second;
  changed_.wait_until(lock, Deadline(timeout_ms),
                      [&] { return stopping_ || job->phase == Phase::kFailed || job->level >= level; });
  if (job->phase == Phase::kFailed) return job->failure;
  if (job->level >= level) return {};
  if (stopping_) return Closed();
  return Status(Code::kTimeout, DescribeLocked(*job));
}

Status JobTable::Drain(uint64_t timeout_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto busy = [this] {
    for (const auto& [step, job] : jobs_) {
      if (!job->done() || job->busy()) return job.get();
    }
    return static_cast<Job*>(nullptr);
  };
  const auto over = [&] { return busy() == nullptr && !keeping_ && !UpkeepLocked(); };
  if (changed_.wait_until(lock, Deadline(timeout_ms), [&] { return stopping_ || over(); })) {
    return over() ? Status() : Closed();
  }
  const Job* job = busy();
  return Status(Code::kTimeout, job != nullptr ? DescribeLocked(*job) : "older checkpoints are being removed");
}

void JobTable::AskCleanUp(int64_t committed, bool durable) {
  std::lock_guard<std::mutex> lock(mutex_);
  held_ = !durable;
  if (durable) {
    upkeep_.committed = committed;
    try {
      upkeep_.gathered.push_back(committed);
    } catch (const std::bad_alloc&) {  // NOLINT(bugprone-empty-catch): the records stay, unread
    }
  }
  changed_.notify_all();
}

void JobTable::AskRemoval(std::vector<int64_t> steps) {
  std::lock_guard<std::mutex> lock(mutex_);
  upkeep_.remove.insert(upkeep_.remove.end(), steps.begin(), steps.end());
  changed_.notify_all();
}

bool JobTable::NextForRetention(Upkeep* upkeep) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || UpkeepLocked(); });
  if (!UpkeepLocked()) return false;
  *upkeep = std::exchange(upkeep_, Upkeep());
  keeping_ = true;
  return true;
}

void JobTable::FinishUpkeep() {
  std::lock_guard<std::mutex> lock(mutex_);
  keeping_ = false;
  Moved();
  changed_.notify_all();
}

bool JobTable::AwaitUpkeep() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto over = [this] { return !keeping_ && !UpkeepLocked(); };
  if (over()) return false;
  changed_.wait(lock, [&] { return stopping_ || over(); });
  return true;
}

std::vector<Report> JobTable::Poll(size_t capacity) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<Report> reports;
  while (!notices_.empty() && reports.size() < capacity) {
    reports.emplace_back();
    reports.back().message = std::move(notices_.front());
    notices_.pop_front();
  }
  for (auto it = jobs_.begin(); it != jobs_.end() && reports.size() < capacity;) {
    Job& job = *it->second;
    if (job.changed) {
      job.changed = false;
      reports.push_back(Report{job.step, job.level, job.failure.code(), job.released, job.divergence.first, job.nbytes,
                               job.local_s, job.written_s, job.external_s,
                               job.failure.ok() ? job.divergence.text : job.failure.message()});
    }
    // A stage may still use the job, although the last report about it is made.
    const bool over = job.done() && job.released && !job.busy();
    if (over) forgotten_[job.step] = job.failure;
    it = over ? jobs_.erase(it) : std::next(it);
  }
  while (forgotten_.size() > kRemembered) forgotten_.erase(forgotten_.begin());
  return reports;
}

void JobTable::PauseCommit(uint64_t us) {
  std::unique_lock<std::mutex> lock(mutex_);
  const int64_t newest = newest_submitted_;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(us);
  changed_.wait_until(lock, deadline, [&] { return stopping_ || newest_submitted_ != newest; });
}

void JobTable::Pause(uint64_t ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_until(lock, Deadline(ms), [&] { return stopping_.load(); });
}

// Forgets the oldest jobs that are over, if there are too many: the table must not grow for ever if the caller never
// calls Poll.
void JobTable::ForgetLocked() {
  for (auto it = jobs_.begin(); jobs_.size() > kRemembered && it != jobs_.end();) {
    const Job& job = *it->second;
    const bool over = job.done() && job.released && !job.busy();
    if (over) forgotten_[job.step] = job.failure;
    it = over ? jobs_.erase(it) : std::next(it);
  }
}

std::string JobTable::DescribeAllLocked() const {
  std::string all;
  for (const auto& [step, job] : jobs_) {
    if (!job->done()) all += (all.empty() ? "" : "; ") + DescribeLocked(*job);
  }
  return all;
}

std::string JobTable::DescribeLocked(const Job& job) const {
  std::string what = job.waits_for;
  if (what.empty() && job.phase == Phase::kForLocal) what = "is being written to the local tier";
  const bool writing = job.phase == Phase::kForTransfer || job.phase == Phase::kForPublish;
  if (what.empty() && writing) what = "is being written to the external store";
  if (what.empty() && job.phase == Phase::kForCommit) what = "waits for its commit";
  // Committed or failed: its last files are being removed.
  if (what.empty()) what = "is being finished";
  return StepText(job.step) + " " + what;
}

}  // namespace deepfreeze
