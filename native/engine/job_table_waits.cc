// The part of the table that the engine's caller uses: the calls that wait for a bounded time, and the reports.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "deepfreeze/deepfreeze.h"
#include "engine/job_table.h"
#include "store/meeting.h"

namespace deepfreeze {
namespace {

constexpr size_t kRemembered = 1024;

std::string StepText(int64_t step) { return "step " + std::to_string(step); }

// The df_level that a job has reached. A rank's part on the external store is as safe as one on the local tier.
int PublicLevel(const Job& job) {
  if (Reached(job.at[kExternal].state)) return DF_EXTERNAL;
  return Reached(job.at[kLocal].state) || job.at[kExternal].stage == kCommit ? DF_LOCAL : DF_CAPTURED;
}

// Adds one more to the reasons or ways in `all`; "" is none.
void Join(std::string* all, const std::string& one) {
  if (!one.empty()) *all += (all->empty() ? "" : " and ") + one;
}

Status Closed() { return Status(Code::kClosed, "the engine is shutting down"); }

}  // namespace

Status JobTable::Submit(const JobRef& job, bool captured, uint64_t timeout_ms) {
  const MutexLock lock(&mutex_);
  const auto deadline = Deadline(timeout_ms);
  if (stopping_) return Closed();
  // The table must not grow for ever if the caller never calls Poll.
  for (auto it = jobs_.begin(); jobs_.size() > kRemembered && it != jobs_.end();) it = ForgetLocked(it);
  if (job->step <= newest_submitted_) {
    return Status(Code::kInvalid,
                  StepText(job->step) + " was submitted after " + StepText(newest_submitted_) + ": steps must grow");
  }
  job->at.resize(rows_.size());
  if (job->lost.ok() && !captured) {
    ++memory_wanted_;
    ReleaseWantedLocked();
    // With the slot that it will have besides.
    const size_t most = std::min<size_t>(slots_are_memory_ && local_tier_ ? 2 : 1, in_flight_);
    const bool room = AwaitLocked(deadline, [&] {
      mutex_.AssertHeld();
      return RoomLocked() && OneMemoryRoomLocked(most);
    });
    --memory_wanted_;
    if (stopping_) return Closed();
    if (!room) {
      return Status(Code::kTimeout,
                    StepText(job->step) + ": no memory for a checkpoint in flight: " + DescribeAllLocked());
    }
  }
  newest_submitted_ = job->step;
  job->submitted_us = env_->NowMicros();
  jobs_[job->step] = job;
  EnterLocked(job.get(), captured);
  changed_.NotifyAll();
  return {};
}

void JobTable::EnterLocked(Job* job, bool captured) {
  if (!job->lost.ok()) {
    for (LevelId level = kCaptured; level < rows_.size(); ++level) {
      if (level != kExternal) (void)ChangeLocked(job, level, Change::kFail);
    }
    return;
  }
  if (captured) TakeReservedLocked(job);
  (void)ChangeLocked(job, kCaptured, Change::kBegin);
  (void)ChangeLocked(job, kCaptured, Change::kFinish);
  LevelSet readers = Only(kExternal);
  for (LevelId level = kLocal; level < rows_.size(); ++level) {
    job->readers += rows_[level].keeps_memory ? 1 : 0;
    if (rows_[level].keeps_memory && (level != kLocal || local_tier_)) readers |= Only(level);
  }
  job->parts.Begin(readers);
  if (!local_tier_) (void)ChangeLocked(job, kLocal, Change::kFail);
}

void JobTable::TakeReservedLocked(Job* job) {
  const Reservation taken = std::exchange(reserved_, Reservation());
  job->home = taken.home;
  job->base = taken.base;
  job->base_size = taken.span.size;
  const bool in_slot = taken.home == Home::kSlot;
  if (!in_slot) first_part_ = job->first_part;
  (in_slot ? job->slot : job->buffer) = taken.number;
  MoveSlotLocked(job, in_slot ? &slots_ : &buffers_, taken.number, SlotState::kCaptured);
}

Status JobTable::Reserve(Home home, uint64_t timeout_ms, int* number) {
  const MutexLock lock(&mutex_);
  ++memory_wanted_;
  ReleaseWantedLocked();
  bool given_up = false;
  JobRef before;
  *number = SlotPool::kNoSlot;
  const bool over = AwaitLocked(Deadline(timeout_ms), [&] {
    mutex_.AssertHeld();
    int64_t lost = SlotPool::kNoStep;
    // The slots of a dropped local tier are removed right afterwards, so no capture may take one of them any more.
    given_up = home == Home::kSlot && !local_tier_;
    if (given_up) return true;
    if (BacklogRoomLocked() == 0) return false;
    if (home == Home::kSlot && OneMemoryRoomLocked(1)) *number = TakeSlotLocked(SlotPool::kNoStep);
    if (home == Home::kBuffer && RoomLocked() && OneMemoryRoomLocked(1)) {
      *number = buffers_.Take(SlotPool::kNoStep, &lost);
    }
    if (home == Home::kBuffer && *number == SlotPool::kNoSlot) {
      before = PassableLocked();
      if (before != nullptr) *number = before->buffer;
    }
    return *number != SlotPool::kNoSlot;
  });
  --memory_wanted_;
  if (stopping_) return Closed();
  if (given_up) return Status(Code::kIo, "the local tier was given up");
  if (!over) return Status(Code::kTimeout, "no memory for it: " + DescribeAllLocked());
  reserved_.home = home;
  reserved_.number = *number;
  reserved_.before = std::move(before);
  if (one_memory_) changed_.NotifyAll();  // AwaitRoomFor
  return {};
}

JobRef JobTable::PassableLocked() const {
  JobRef oldest;
  for (const auto& [step, job] : jobs_) {
    if (job->home != Home::kBuffer || job->released()) continue;
    if (job->at[kCaptured].state != LevelState::kDone) return nullptr;  // the whole is free in a moment
    if (oldest == nullptr && job->parts.Free(first_part_, first_part_)) oldest = job;
  }
  return oldest;
}

void JobTable::Bind(char* base, uint64_t size, uint64_t part_bytes) {
  const MutexLock lock(&mutex_);
  reserved_.base = base;
  reserved_.span = BufferSpan{base, size, part_bytes};
  if (reserved_.home == Home::kBuffer) reserved_.order.Reset(reserved_.span.parts());
}

Status JobTable::TakeParts(const char* data, uint64_t n, uint64_t timeout_ms) {
  const MutexLock lock(&mutex_);
  const BufferSpan& span = reserved_.span;
  if (reserved_.home != Home::kBuffer || n == 0 || !span.Holds(data)) return {};
  const size_t first = span.PartOf(data);
  const size_t last = span.PartOf(data + n - 1);
  reserved_.order.Take(first, last);
  const auto free = [&] {
    mutex_.AssertHeld();
    return reserved_.before == nullptr || reserved_.before->parts.Free(first, last);
  };
  if (free()) return {};
  if (parts_wanted_++ == 0) ++memory_wanted_;  // all threads wait for the memory of one capture
  ReleaseWantedLocked();
  const bool over = AwaitLocked(Deadline(timeout_ms), free);
  if (--parts_wanted_ == 0) --memory_wanted_;
  if (stopping_) return Closed();
  return over ? Status() : Status(Code::kTimeout, "no memory for a part of it: " + DescribeAllLocked());
}

Status JobTable::AwaitWhole(uint64_t timeout_ms) {
  const MutexLock lock(&mutex_);
  if (reserved_.before == nullptr) return {};
  ++memory_wanted_;
  ReleaseWantedLocked();
  const bool over = AwaitLocked(Deadline(timeout_ms), [this] {
    mutex_.AssertHeld();
    return reserved_.before == nullptr;
  });
  --memory_wanted_;
  if (stopping_) return Closed();
  return over ? Status() : Status(Code::kTimeout, "its memory is still in use: " + DescribeAllLocked());
}

bool JobTable::Hold(int64_t step) {
  const MutexLock lock(&mutex_);
  held_ = -1;
  bool oldest = true;
  for (const auto& [number, job] : jobs_) {
    if (job->over()) continue;
    const Standing& at = job->at[kExternal];
    const bool waits = at.state == LevelState::kNone && at.stage == kTransfer && job->lost.ok();
    if (number == step && waits && !oldest) held_ = step;
    oldest = false;
  }
  changed_.NotifyAll();
  return held_ >= 0;
}

bool JobTable::Replace(int64_t step, int64_t by) {
  Status why(Code::kSuperseded, SupersededText(by));
  const MutexLock lock(&mutex_);
  const auto found = jobs_.find(step);
  if (step != held_ || found == jobs_.end()) return false;
  held_ = -1;
  found->second->superseded_by = by;
  FailExternalLocked(found->second.get(), std::move(why));
  return true;
}

void JobTable::Supersede(int64_t step, int64_t by) {
  const MutexLock lock(&mutex_);
  const auto found = jobs_.find(step);
  if (step == held_ || found == jobs_.end() || found->second->over()) return;
  found->second->superseded_by = by;
  ++given_up_;
  changed_.NotifyAll();
}

std::vector<int64_t> JobTable::UnfinishedSteps() const {
  const MutexLock lock(&mutex_);
  std::vector<int64_t> steps;
  for (const auto& [step, job] : jobs_) {
    if (!job->over()) steps.push_back(step);
  }
  return steps;
}

bool JobTable::AwaitRoomFor(uint32_t present) {
  const MutexLock lock(&mutex_);
  return AwaitLocked(CondVar::Time::max(), [&] {
    mutex_.AssertHeld();
    // No more captures than may be uncommitted are held at once.
    if (uncommitted_ > 0 && present >= uncommitted_) return false;
    if (!one_memory_) return true;
    // The first capture lies in the caller's memory, and is submitted soon after the engine is told of its plan.
    const bool begun = newest_submitted_ >= 0 || reserved_.number != SlotPool::kNoSlot;
    return begun && present + WithCallerLocked() < in_flight_;
  });
}

void JobTable::Unreserve() {
  const MutexLock lock(&mutex_);
  SlotPool* pool = reserved_.home == Home::kSlot ? &slots_ : &buffers_;
  if (reserved_.before == nullptr) (void)pool->Move(reserved_.number, SlotState::kFree, SlotPool::kNoStep);
  reserved_ = Reservation();
  changed_.NotifyAll();
}

Reservation JobTable::reserved() const {
  const MutexLock lock(&mutex_);
  return reserved_;
}

char* JobTable::reserved_base() const {
  const MutexLock lock(&mutex_);
  return reserved_.base;
}

uint32_t JobTable::Room(Home home) const {
  const MutexLock lock(&mutex_);
  // What is reserved is captured next, and is not committed then.
  const bool reserved = reserved_.number != SlotPool::kNoSlot;
  uint32_t backlog = BacklogRoomLocked() - (reserved && BacklogRoomLocked() > 0 ? 1 : 0);
  if (one_memory_) {
    const auto elsewhere = static_cast<uint32_t>(WithCallerLocked() + SlotsInMemoryLocked());
    backlog = std::min(backlog, in_flight_ - std::min(in_flight_, elsewhere));
  }
  if (home == Home::kSlot) return std::min(slots_.Room(), backlog);
  // A checkpoint that is whole on the local tier is not counted: it gives its memory up when a capture needs it.
  uint32_t held = reserved_.home == Home::kBuffer ? 1 : 0;
  for (const auto& [step, job] : jobs_) {
    held += job->in_flight() && !job->on_slot() && job != reserved_.before ? 1 : 0;
  }
  return std::min(in_flight_ - std::min(in_flight_, held), backlog);
}

uint32_t JobTable::HeldLocked() const {
  uint32_t held = reserved_.home == Home::kBuffer ? 1 : 0;
  for (const auto& [step, job] : jobs_) held += job->in_flight() && job != reserved_.before ? 1 : 0;
  return held;
}

uint32_t JobTable::WithCallerLocked() const {
  uint32_t held = 0;
  for (const auto& [step, job] : jobs_) {
    if (job->home != Home::kCaller || job->released() || !job->lost.ok()) continue;
    const bool wants_slot =
        slots_are_memory_ && local_tier_ && job->slot == SlotPool::kNoSlot && !Settled(job->at[kLocal].state);
    held += wants_slot ? 2 : 1;
  }
  return held;
}

bool JobTable::OneMemoryRoomLocked(size_t more) const {
  if (!one_memory_) return true;
  return WithCallerLocked() + SlotsInMemoryLocked() + buffers_.size() - buffers_.Room() + more <= in_flight_;
}

size_t JobTable::SlotsInMemoryLocked() const {
  if (!slots_are_memory_) return 0;
  // Without a local tier nobody takes a sealed slot again.
  return local_tier_ ? slots_.size() - slots_.Room() : slots_.size() - slots_.Idle(false).size();
}

uint32_t JobTable::BacklogRoomLocked() const {
  uint64_t most = uint64_t{in_flight_} + slots_.size();
  if (uncommitted_ > 0) most = std::min(most, uncommitted_);
  auto room = static_cast<uint32_t>(most);
  for (const auto& [step, job] : jobs_) room -= !job->over() && room > 0 ? 1 : 0;
  return room;
}

Status JobTable::Wait(int64_t step, int level, uint64_t timeout_ms) {
  const MutexLock lock(&mutex_);
  const auto found = jobs_.find(step);
  if (found == jobs_.end()) {
    const auto old = forgotten_.find(step);
    if (old != forgotten_.end()) return old->second;
    return Status(Code::kInvalid, StepText(step) + " was never submitted, or ended long ago");
  }
  const JobRef job = found->second;
  (void)AwaitLocked(Deadline(timeout_ms), [&] { return job->failed() || PublicLevel(*job) >= level; });
  if (job->failed()) return job->failure;
  if (PublicLevel(*job) >= level) return {};
  if (stopping_) return Closed();
  return Status(Code::kTimeout, DescribeLocked(*job));
}

Status JobTable::Drain(CondVar::Time deadline) {
  const MutexLock lock(&mutex_);
  held_ = -1;
  changed_.NotifyAll();
  const Job* busy = nullptr;
  const auto over = [&] {
    mutex_.AssertHeld();
    busy = nullptr;
    for (const auto& [step, job] : jobs_) {
      if (busy == nullptr && (!job->over() || job->busy())) busy = job.get();
    }
    return busy == nullptr;
  };
  if (AwaitLocked(deadline, over) || over()) return {};
  return stopping_ ? Closed() : Status(Code::kTimeout, DescribeLocked(*busy));
}

std::vector<Report> JobTable::Poll(size_t capacity) {
  const MutexLock lock(&mutex_);
  std::vector<Report> reports;
  while (!notices_.empty() && reports.size() < capacity) {
    reports.emplace_back();
    reports.back().message = std::move(notices_.front());
    notices_.pop_front();
  }
  for (auto it = jobs_.begin(); it != jobs_.end() && reports.size() < capacity;) {
    Job& job = *it->second;
    if (job.unreported) {
      job.unreported = false;
      reports.push_back(Report{job.step, PublicLevel(job), job.failure.code(), job.released(), job.divergence.first,
                               job.nbytes, job.local_s, job.written_s, job.external_s,
                               job.failure.ok() ? job.divergence.text : job.failure.message(), job.copy_s, job.cpu_s,
                               job.superseded_by});
    }
    it = ForgetLocked(it);
  }
  while (forgotten_.size() > kRemembered) forgotten_.erase(forgotten_.begin());
  return reports;
}

std::vector<UnderWay> JobTable::Unfinished(size_t capacity) const {
  const MutexLock lock(&mutex_);
  std::vector<UnderWay> found;
  for (const auto& [step, job] : jobs_) {
    if (found.size() == capacity) break;
    if (job->over()) continue;
    const bool published = job->at[kExternal].stage == kCommit;
    found.push_back(UnderWay{step, PublicLevel(*job), published, job->nbytes, job->local_bytes, job->external_bytes,
                             SinceLocked(*job), WaitsLocked(*job)});
  }
  return found;
}

// Forgets the job if nothing more will happen to it. A level may still use a job whose last report is made. RETURNS the
// next job.
JobTable::Jobs::iterator JobTable::ForgetLocked(Jobs::iterator it) {
  const Job& job = *it->second;
  const bool ended = job.over() && job.released() && !job.busy();
  if (ended) forgotten_[job.step] = job.failure;
  return ended ? jobs_.erase(it) : std::next(it);
}

void JobTable::SetDivergence(const JobRef& job, const Divergence& divergence) {
  const MutexLock lock(&mutex_);
  job->divergence = divergence;
}

void JobTable::SetWaitsFor(const JobRef& job, std::string what) {
  const MutexLock lock(&mutex_);
  job->at[kExternal].waits_for = std::move(what);
}

void JobTable::Notify(const std::string& notice) {
  const MutexLock lock(&mutex_);
  notices_.push_back(notice);
}

void JobTable::PauseCommit(uint64_t us) {
  const MutexLock lock(&mutex_);
  const int64_t newest = newest_submitted_;
  const uint64_t given_up = given_up_;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(us);
  (void)AwaitLocked(deadline, [&] {
    mutex_.AssertHeld();
    return newest_submitted_ != newest || given_up_ != given_up;
  });
}

void JobTable::Pause(uint64_t ms) {
  const MutexLock lock(&mutex_);
  (void)AwaitLocked(Deadline(ms), [] { return false; });
}

std::string JobTable::DescribeAllLocked() const {
  std::string all;
  for (const auto& [step, job] : jobs_) {
    if (!job->over()) all += (all.empty() ? "" : "; ") + DescribeLocked(*job);
  }
  return all;
}

std::string JobTable::WaitsLocked(const Job& job) const {
  std::string waits;
  for (LevelId level = kLocal; level < rows_.size(); ++level) Join(&waits, job.at[level].waits_for);
  return waits;
}

std::string JobTable::DescribeLocked(const Job& job) const {
  const std::string step = StepText(job.step) + " ";
  std::string ways;
  for (LevelId level = kLocal; level < rows_.size(); ++level) {
    if (!Settled(job.at[level].state)) Join(&ways, rows_[level].whereto);
  }
  if (const std::string waits = WaitsLocked(job); !waits.empty()) return step + waits;
  if (job.over()) return step + "is being finished";  // its last files are being removed
  if (job.at[kExternal].stage == kCommit) return step + "waits for its commit";
  return step + "is being written " + ways;
}

}  // namespace deepfreeze
