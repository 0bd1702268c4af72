// The part of the table that the levels use.
#include "engine/job_table.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace deepfreeze {

JobTable::JobTable(Env* env, const TableOptions& options)
    : env_(env),
      in_flight_(options.in_flight),
      one_memory_(options.one_memory),
      slots_are_memory_(options.slots_are_memory),
      rows_(options.levels),
      on_fault_(options.on_fault),
      clocks_(options.clocks),
      moved_us_(env->NowMicros()),
      transfers_(rows_[kExternal].stages[kTransfer].threads),
      uncommitted_(options.uncommitted),
      local_tier_(options.local_tier),
      slots_(options.slots),
      buffers_(options.in_flight) {}

void JobTable::Stop() {
  const MutexLock lock(&mutex_);
  stopping_ = true;
  changed_.NotifyAll();
}

bool JobTable::MayBeginLocked(const Job& job, LevelId level) const {
  const LevelSet after = rows_[level].after[static_cast<size_t>(job.home)];
  for (LevelId other = 0; other < rows_.size(); ++other) {
    if ((after & Only(other)) != 0 && !Settled(job.at[other].state)) return false;
  }
  return true;
}

void JobTable::Tune(size_t transfers, uint64_t uncommitted) {
  const MutexLock lock(&mutex_);
  transfers_ = transfers;
  uncommitted_ = uncommitted;
  changed_.NotifyAll();
}

// The commit's last place is the oldest checkpoint's. A rank may wait for the oldest to be over before it captures the
// next one, for which newer ones may wait here: with all places they would hold up the oldest, and each other.
size_t JobTable::PlacesLocked(LevelId level, size_t stage) const {
  if (level != kExternal) return rows_[level].stages[stage].threads;
  size_t taken = 0;
  bool first = true;
  for (const auto& [step, job] : jobs_) {
    const Standing& at = job->at[kExternal];
    const bool in_stage = at.state == LevelState::kRunning && at.stage == stage;
    const bool keeps_place = first && stage == kCommit && !job->over();
    taken += in_stage || keeps_place ? 1 : 0;
    first = first && job->over();
  }
  return transfers_ - std::min(transfers_, taken);
}

JobRef JobTable::FindLocked(LevelId level, size_t stage) {
  const size_t places = PlacesLocked(level, stage);
  bool oldest = true;
  for (const auto& [step, job] : jobs_) {
    const Standing& at = job->at[level];
    const bool waits = !job->over() && at.state == LevelState::kNone && at.stage == stage;
    // Nor does a newer one begin: it might need the slot of the held one, which might need its thread.
    if (waits && step == held_ && level == kExternal && stage == kTransfer) return nullptr;
    const bool in_turn = places > 0 || (oldest && stage == kCommit);
    if (waits && in_turn && MayBeginLocked(*job, level)) return job;
    oldest = oldest && job->over();
  }
  return nullptr;
}

JobRef JobTable::Next(LevelId level, size_t stage) {
  const MutexLock lock(&mutex_);
  while (!stopping_) {
    if (JobRef job = FindLocked(level, stage)) {
      if (ChangeLocked(job.get(), level, Change::kBegin)) return job;
      continue;
    }
    changed_.Wait(&mutex_);
  }
  return nullptr;
}

JobRef JobTable::TryNext(LevelId level, size_t stage) {
  const MutexLock lock(&mutex_);
  JobRef job = FindLocked(level, stage);
  return job != nullptr && ChangeLocked(job.get(), level, Change::kBegin) ? job : nullptr;
}

bool JobTable::ChangeLocked(Job* job, LevelId level, Change change) {
  LevelState* state = &job->at[level].state;
  if (!Apply(change, state)) {
    FaultLocked(job);
    return false;
  }
  const bool settled = change == Change::kFinish || change == Change::kFail;
  if (settled && rows_[level].keeps_memory && job->lost.ok()) DropReaderLocked(job);
  // A level that has failed leaves the parts until the transfer has ended, which may still want checksums from it.
  if (change == Change::kFinish) (void)job->parts.Drop(level, 0, job->extents.size());
  return true;
}

void JobTable::MoveSlotLocked(Job* job, SlotPool* pool, int number, SlotState to) {
  if (!pool->Move(number, to, job->step)) FaultLocked(job);
}

void JobTable::FaultLocked(Job* job) noexcept {
  if (on_fault_ == OnFault::kAbort) {
    std::fprintf(stderr, "step %lld: a change that engine/level_state.h does not have\n",
                 static_cast<long long>(job->step));
    std::abort();
  }
  if (!job->over()) {
    job->at[kExternal].state = LevelState::kFailed;
    NoteCpuLocked(job);
    try {
      job->failure = Status(Code::kIo, "step " + std::to_string(job->step) +
                                           ": a fault of the engine's own, so it is not known what there is of the "
                                           "step. Please report it");
    } catch (...) {
      job->failure = Status(Code::kIo, "engine's fault");  // short enough to need no memory
    }
  }
  job->unreported = true;
  changed_.NotifyAll();
}

void JobTable::Finish(const JobRef& job, LevelId level) {
  const MutexLock lock(&mutex_);
  Standing* at = &job->at[level];
  const size_t stage = at->stage;
  const bool last = rows_[level].IsLast(stage);
  if (!ChangeLocked(job.get(), level, last ? Change::kFinish : Change::kPass)) return;
  if (!last) ++at->stage;
  if (level == kLocal) job->local_s = SinceLocked(*job);
  if (level == kExternal && stage == kTransfer) GiveUpMemoryLocked(job.get());
  if (level == kExternal && stage == kPublish) {
    job->written_s = SinceLocked(*job);
    Moved();
  }
  if (level == kExternal && stage == kCommit) {
    job->external_s = SinceLocked(*job);
    job->at[kExternal].waits_for.clear();
  }
  if (last || stage == kPublish) job->unreported = true;
  if (level == kExternal && last) EndLocked(job.get());
  SettleSlotLocked(job.get());
  if (level == kLocal) ReleaseWantedLocked();
  changed_.NotifyAll();
}

void JobTable::ReleaseSlots(int64_t step) {
  const MutexLock lock(&mutex_);
  newest_committed_ = std::max(newest_committed_, step);
  for (const auto& [older, job] : jobs_) {
    if (older < newest_committed_) SettleSlotLocked(job.get());
  }
  slots_.FreeSealed(newest_committed_);  // also of jobs that are forgotten
}

void JobTable::EndLocked(Job* job) {
  NoteCpuLocked(job);
  for (LevelId level = kLocal; level < rows_.size(); ++level) {
    if (job->at[level].state == LevelState::kNone) (void)ChangeLocked(job, level, Change::kFail);
  }
}

// The clocks are read with the mutex held: two jobs that end at once divide the time between them.
void JobTable::NoteCpuLocked(Job* job) {
  if (clocks_ == nullptr) return;
  const double total = clocks_->Total();
  job->cpu_s = total - std::exchange(cpu_noted_, total);
}

void JobTable::Fail(const JobRef& job, LevelId level, Status why) {
  const MutexLock lock(&mutex_);
  if (level == kExternal) return FailExternalLocked(job.get(), std::move(why));
  if (!ChangeLocked(job.get(), level, Change::kFail)) return;
  SettleSlotLocked(job.get());
  changed_.NotifyAll();
}

void JobTable::FailExternalLocked(Job* job, Status why) {
  if (!ChangeLocked(job, kExternal, Change::kFail)) return;
  job->failure = std::move(why);
  job->at[kExternal].waits_for.clear();
  job->unreported = true;
  EndLocked(job);
  GiveUpMemoryLocked(job);
  SettleSlotLocked(job);
  changed_.NotifyAll();
}

bool JobTable::NewerCommitted(int64_t step) const {
  const MutexLock lock(&mutex_);
  return newest_committed_ > step;
}

LevelState JobTable::AwaitSettled(const JobRef& job, LevelId level, CondVar::Time deadline) {
  const MutexLock lock(&mutex_);
  (void)AwaitLocked(deadline, [&] { return Settled(job->at[level].state); });
  return job->at[level].state;
}

int JobTable::AcquireSlot(const JobRef& job) {
  const MutexLock lock(&mutex_);
  while (!stopping_ && !job->over() && job->superseded_by < 0 && !AcquireSlotLocked(job.get())) {
    job->at[kLocal].waits_for = "waits for a free slot on the local tier";
    changed_.Wait(&mutex_);
  }
  job->at[kLocal].waits_for.clear();
  return job->slot;
}

bool JobTable::TryAcquireSlot(const JobRef& job, int* slot) {
  const MutexLock lock(&mutex_);
  const bool known = AcquireSlotLocked(job.get());
  *slot = job->slot;
  return known;
}

// RETURNS whether it is known which slot the job gets, if any.
bool JobTable::AcquireSlotLocked(Job* job) {
  if (job->slot == SlotPool::kNoSlot) job->slot = TakeSlotLocked(job->step);
  return job->slot != SlotPool::kNoSlot || !slots_.MayGetFree(job->step);
}

int JobTable::TakeSlotLocked(int64_t step) {
  int64_t lost = SlotPool::kNoStep;
  const int slot = slots_.Take(step, &lost);
  const auto owner = jobs_.find(lost);
  if (owner != jobs_.end()) (void)ChangeLocked(owner->second.get(), kLocal, Change::kLeave);
  return slot;
}

void JobTable::SettleSlotLocked(Job* job) {
  if (job->slot == SlotPool::kNoSlot || slots_.step(job->slot) != job->step) return;
  const LevelState local = job->at[kLocal].state;
  if (!Settled(local)) return;  // the local level still writes to it
  const bool whole = local == LevelState::kDone;
  SlotState to = SlotState::kFree;
  if (job->over()) {
    if (whole && job->step > newest_committed_ && job->failed() && !job->superseded()) to = SlotState::kSealed;
  } else if (whole) {
    to = SlotState::kSending;
  } else if (job->home == Home::kSlot) {
    to = SlotState::kCaptured;
  }
  if (to == slots_.state(job->slot)) return;
  MoveSlotLocked(job, &slots_, job->slot, to);
  if (to == SlotState::kFree && whole) (void)ChangeLocked(job, kLocal, Change::kLeave);
}

void JobTable::DropLocalTier(const std::string& notice) {
  const MutexLock lock(&mutex_);
  const bool first = local_tier_;
  local_tier_ = false;
  changed_.NotifyAll();
  if (first) notices_.push_back(notice);  // done last, because there may be no memory for it
}

bool JobTable::local_tier() const {
  const MutexLock lock(&mutex_);
  return local_tier_;
}

std::vector<uint32_t> JobTable::IdleSlots() const {
  const MutexLock lock(&mutex_);
  return slots_.Idle(stopping_);
}

bool JobTable::BeginRead(const JobRef& job, size_t first, size_t n) {
  const MutexLock lock(&mutex_);
  if (job->at[kCaptured].state != LevelState::kDone || !job->parts.MayRead(kExternal, first, n)) return false;
  ++job->readers;
  return true;
}

void JobTable::DoneReading(const JobRef& job, LevelId level, size_t first, size_t n) {
  if (job->home != Home::kBuffer) return;
  const MutexLock lock(&mutex_);
  if (job->parts.Drop(level, first, n) && memory_wanted_ > 0) changed_.NotifyAll();
}

void JobTable::ReadAgain(const JobRef& job, LevelId level) {
  const MutexLock lock(&mutex_);
  if (job->at[kCaptured].state == LevelState::kDone && reserved_.before != job) job->parts.Restore(level);
}

bool JobTable::HasRead(const JobRef& job, LevelId level, size_t first, size_t n) const {
  if (job->home != Home::kBuffer) return false;
  const MutexLock lock(&mutex_);
  return job->parts.HasRead(level, first, n);
}

bool JobTable::OnSlot(const JobRef& job) const {
  const MutexLock lock(&mutex_);
  return job->on_slot();
}

void JobTable::EndRead(const JobRef& job) {
  const MutexLock lock(&mutex_);
  DropReaderLocked(job.get());
  if (job->released()) changed_.NotifyAll();
}

void JobTable::DropReaderLocked(Job* job) {
  if (--job->readers == 0 && job->at[kCaptured].state == LevelState::kLeft) FreeMemoryLocked(job);
}

// From now on no chunk of the memory is read.
void JobTable::GiveUpMemoryLocked(Job* job) {
  if (job->at[kCaptured].state != LevelState::kDone) return;
  (void)ChangeLocked(job, kCaptured, Change::kLeave);
  if (job->readers == 0) FreeMemoryLocked(job);
}

void JobTable::FreeMemoryLocked(Job* job) {
  job->unreported = true;
  job->memory.clear();
  changed_.NotifyAll();
  if (job->home != Home::kBuffer) return;
  if (reserved_.before.get() != job) return MoveSlotLocked(job, &buffers_, job->buffer, SlotState::kFree);
  if (!buffers_.Move(job->buffer, SlotState::kReserved, SlotPool::kNoStep)) FaultLocked(job);
  reserved_.before.reset();
}

// Releases the memory of checkpoints that are whole on the local tier, the oldest first: of as many as captures wait
// for.
void JobTable::ReleaseWantedLocked() {
  uint32_t left = in_flight_;  // how many checkpoints may stay in memory
  left -= std::min(left, memory_wanted_);
  if (one_memory_ && memory_wanted_ > 0) left = 0;  // a slot may be wanted, and counts too
  const auto holds = [](const Job& job) {
    return job.home != Home::kSlot && job.at[kCaptured].state == LevelState::kDone;
  };
  uint32_t held = 0;
  for (const auto& [step, job] : jobs_) held += holds(*job) ? 1 : 0;
  for (const auto& [step, job] : jobs_) {
    if (held <= left) break;
    if (!holds(*job) || !job->on_slot()) continue;
    GiveUpMemoryLocked(job.get());
    --held;
  }
}

double JobTable::SinceLocked(const Job& job) const {
  return static_cast<double>(env_->NowMicros() - job.submitted_us) * 1e-6;
}

}  // namespace deepfreeze
