#include "engine/job_table.h"

#include <algorithm>

#include "deepfreeze/deepfreeze.h"

namespace deepfreeze {

JobTable::JobTable(Env* env, uint32_t in_flight, uint32_t slots, bool local_tier)
    : env_(env),
      in_flight_(in_flight),
      first_phase_(local_tier ? Phase::kForLocal : Phase::kForTransfer),
      moved_us_(env->NowMicros()),
      local_tier_(local_tier),
      slot_jobs_(slots),
      buffer_jobs_(in_flight) {}

void JobTable::Stop() {
  std::lock_guard<std::mutex> lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

JobRef JobTable::FindLocked(Phase phase) const {
  for (const auto& [step, job] : jobs_) {
    if (job->done()) continue;
    if (job->phase == phase && !job->running) return job;
    // A stage takes the steps in their order, because after the commit of a step retention removes what older steps
    // left.
    if (job->phase < phase) return nullptr;
  }
  return nullptr;
}

JobRef JobTable::Next(Phase phase) {
  std::unique_lock<std::mutex> lock(mutex_);
  JobRef next;
  changed_.wait(lock, [&] { return stopping_ || (next = FindLocked(phase)) != nullptr; });
  if (stopping_) return nullptr;
  next->running = true;
  return next;
}

JobRef JobTable::NextForLocal() {
  std::unique_lock<std::mutex> lock(mutex_);
  JobRef next;
  const auto unchecked = [&]() -> JobRef {
    for (const auto& [step, job] : jobs_) {
      if (job->home_is_slot && !job->checking && !job->checked && !job->done()) return job;
    }
    return nullptr;
  };
  changed_.wait(lock, [&] {
    return stopping_ || (next = unchecked()) != nullptr || (next = FindLocked(Phase::kForLocal)) != nullptr;
  });
  if (stopping_) return nullptr;
  (next->home_is_slot ? next->checking : next->running) = true;
  return next;
}

void JobTable::AwaitChecked(const JobRef& job) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || job->checked; });
}

int JobTable::AcquireSlot(const JobRef& job) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (job->slot >= 0) return job->slot;  // the step was captured in this slot
  job->waits_for = "waits for a free slot on the local tier";
  changed_.wait(lock, [&] { return stopping_ || TakeSlotLocked(job) || SlotsWaitForLocked(*job); });
  job->waits_for.clear();
  return job->slot;
}

bool JobTable::SlotsWaitForLocked(const Job& job) const {
  return std::all_of(slot_jobs_.begin(), slot_jobs_.end(), [&](const JobRef& owner) {
    return owner->phase == Phase::kForCapture || (owner->phase != Phase::kFailed && owner->step > job.step);
  });
}

bool JobTable::TakeSlotLocked(const JobRef& job) {
  FreeSlotsLocked();
  JobRef failed;
  for (size_t i = 0; i < slot_jobs_.size(); ++i) {
    const JobRef& owner = slot_jobs_[i];
    if (owner == nullptr) {
      slot_jobs_[i] = job;
      job->slot = static_cast<int>(i);
      return true;
    }
    if (owner->phase == Phase::kFailed && !owner->busy() && (failed == nullptr || owner->step < failed->step)) {
      failed = owner;
    }
  }
  if (failed == nullptr) return false;
  job->slot = failed->slot;
  slot_jobs_[static_cast<size_t>(job->slot)] = job;
  failed->slot = -1;
  failed->on_slot = false;
  return true;
}

void JobTable::FinishLocal(const JobRef& job) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!job->home_is_slot) {
    job->running = false;
    job->phase = Phase::kForTransfer;
  }
  job->checking = false;
  job->checked = true;
  job->on_slot = true;
  job->level = std::max<int>(job->level, DF_LOCAL);
  job->local_s = SinceLocked(*job);
  job->changed = true;
  if (job->done()) ReleaseLocked(job.get());  // failed meanwhile
  ReleaseWantedLocked();
  changed_.notify_all();
}

void JobTable::SkipLocal(const JobRef& job) {
  std::lock_guard<std::mutex> lock(mutex_);
  job->checking = false;
  job->checked = true;
  if (!job->home_is_slot) {
    job->running = false;
    job->phase = Phase::kForTransfer;
    if (job->slot >= 0) slot_jobs_[static_cast<size_t>(job->slot)] = nullptr;
    job->slot = -1;
  }
  if (job->done()) ReleaseLocked(job.get());  // failed meanwhile
  changed_.notify_all();
}

void JobTable::FinishTransfer(const JobRef& job) {
  std::lock_guard<std::mutex> lock(mutex_);
  job->running = false;
  ReleaseLocked(job.get());
  job->phase = Phase::kForPublish;
  changed_.notify_all();
}

void JobTable::Published(const JobRef& job) {
  std::lock_guard<std::mutex> lock(mutex_);
  job->running = false;
  job->phase = Phase::kForCommit;
  job->level = DF_LOCAL;
  job->written_s = SinceLocked(*job);
  Moved();
  job->changed = true;
  changed_.notify_all();
}

void JobTable::Committed(const JobRef& job) {
  std::lock_guard<std::mutex> lock(mutex_);
  job->phase = Phase::kCommitted;
  job->level = DF_EXTERNAL;
  job->external_s = SinceLocked(*job);
  job->changed = true;
  job->waits_for.clear();
  newest_committed_ = std::max(newest_committed_, job->step);
  FreeSlotsLocked();
  changed_.notify_all();
}

void JobTable::Settle(const JobRef& job) {
  std::lock_guard<std::mutex> lock(mutex_);
  job->running = false;
  FreeSlotsLocked();
  changed_.notify_all();
}

void JobTable::Fail(const JobRef& job, Status failure) {
  std::lock_guard<std::mutex> lock(mutex_);
  job->running = false;
  if (!job->done()) {
    job->phase = Phase::kFailed;
    job->failure = std::move(failure);
    job->changed = true;
  }
  if (!job->on_slot && !job->checking && job->slot >= 0) {
    slot_jobs_[static_cast<size_t>(job->slot)] = nullptr;
    job->slot = -1;
  }
  ReleaseLocked(job.get());
  changed_.notify_all();
}

void JobTable::DropLocalTier(const std::string& notice) {
  std::lock_guard<std::mutex> lock(mutex_);
  const bool first = local_tier_;
  local_tier_ = false;
  changed_.notify_all();
  if (first) notices_.push_back(notice);  // done last, because there may be no memory for it
}

bool JobTable::local_tier() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return local_tier_;
}

std::vector<uint32_t> JobTable::IdleSlots() const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<uint32_t> idle;
  for (size_t i = 0; i < slot_jobs_.size(); ++i) {
    const JobRef& job = slot_jobs_[i];
    // A step that was captured in a slot is read from the slot until its memory is released.
    const bool read = job != nullptr && job->home_is_slot && (job->checking || !job->released) && !stopping_;
    if (read) continue;
    if (job == nullptr || !job->on_slot || job->step <= newest_committed_) idle.push_back(static_cast<uint32_t>(i));
  }
  return idle;
}

bool JobTable::BeginRead(const JobRef& job) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (job->give_up_memory || job->released) return false;
  ++job->memory_users;
  return true;
}

void JobTable::EndRead(const JobRef& job) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (--job->memory_users == 0 && job->give_up_memory) {
    ReleaseLocked(job.get());
    changed_.notify_all();
  }
}

void JobTable::SetDivergence(const JobRef& job, const Divergence& divergence) {
  std::lock_guard<std::mutex> lock(mutex_);
  job->divergence = divergence;
}

void JobTable::SetWaitsFor(const JobRef& job, std::string what) {
  std::lock_guard<std::mutex> lock(mutex_);
  job->waits_for = std::move(what);
}

void JobTable::Notify(const std::string& notice) {
  std::lock_guard<std::mutex> lock(mutex_);
  notices_.push_back(notice);
}

void JobTable::ReleaseLocked(Job* job) {
  // The local writer reads this memory while it checksums the step, or copies it to a slot.
  if (job->released || job->memory_users > 0 || job->checking) return;
  job->released = true;
  job->changed = true;
  job->memory.clear();
  if (job->buffer >= 0) buffer_jobs_[static_cast<size_t>(job->buffer)] = nullptr;
  job->buffer = -1;
}

// Releases the memory of checkpoints that are whole on the local tier, the oldest first: of as many as calls of Submit
// wait for.
void JobTable::ReleaseWantedLocked() {
  uint32_t left = in_flight_;  // how many checkpoints may stay in memory
  left -= std::min(left, memory_wanted_);
  uint32_t held = 0;
  for (const auto& [step, job] : jobs_) held += job->in_flight() && !job->give_up_memory ? 1 : 0;
  for (const auto& [step, job] : jobs_) {
    if (held <= left) break;
    if (!job->in_flight() || job->give_up_memory || !job->on_slot) continue;
    job->give_up_memory = true;
    ReleaseLocked(job.get());
    --held;
  }
}

void JobTable::FreeSlotsLocked() {
  for (JobRef& owner : slot_jobs_) {
    if (owner == nullptr || owner->phase == Phase::kForCapture || owner->step > newest_committed_) continue;
    if (owner->home_is_slot && !owner->done()) continue;  // the slot has the only copy of the step
    // The local writer or the transfer may still read the slot. Retention, which runs for a committed step, does not.
    if (owner->checking || (owner->running && owner->phase != Phase::kCommitted)) continue;
    owner->slot = -1;
    owner->on_slot = false;
    owner = nullptr;
  }
}

uint32_t JobTable::HeldLocked() const {
  uint32_t held = reserved_ != nullptr && reserved_->in_flight() ? 1 : 0;
  for (const auto& [step, job] : jobs_) held += job->in_flight() ? 1 : 0;
  return held;
}

uint32_t JobTable::BacklogRoomLocked() const {
  uint32_t room = in_flight_ + static_cast<uint32_t>(slot_jobs_.size());
  for (const auto& [step, job] : jobs_) room -= !job->done() && room > 0 ? 1 : 0;
  return room;
}

double JobTable::SinceLocked(const Job& job) const {
  return static_cast<double>(env_->NowMicros() - job.submitted_us) * 1e-6;
}

}  // namespace deepfreeze
