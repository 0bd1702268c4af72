#include "engine/transfer.h"

#include <algorithm>
#include <iterator>

#include "base/crc32c.h"
#include "engine/patience.h"

namespace deepfreeze {
namespace {

uint64_t BytesOfRun(const Job& job, size_t run) {
  uint64_t bytes = 0;
  for (size_t i = job.runs[run]; i < job.runs[run + 1]; ++i) bytes += job.extents[i].size;
  return bytes;
}

}  // namespace

Status Transfer::Write(const JobRef& job) {
  const auto move = [&]() -> Status {
    DF_RETURN_IF_ERROR(LookFirst(job));
    return job->lost.ok() ? Move(job) : job->lost;
  };
  Status status = Contained([&] { return AwaitRank0(job); });
  if (status.ok()) status = Patiently(context_, job, move);
  // Without room on the store, what failed steps have left there is removed first, and the step written again.
  if (status.code() == Code::kNoSpace && context_.options.identity.rank == 0 && remover_->MakeRoom(job->step)) {
    status = Patiently(context_, job, move);
  }
  if (status.ok() || status.code() == Code::kClosed) return status;
  job->shard.reset();
  // The slot of a step that has failed is for the next start of the job, so it is made whole first.
  if (job->superseded_by < 0) (void)context_.table->AwaitSettled(job, kLocal, CondVar::Time::max());
  if (context_.table->stopping()) return Status(Code::kClosed, "the engine is shutting down");
  return FailStep(context_, job, std::move(status));
}

Status Transfer::LookFirst(const JobRef& job) {
  if (context_.options.identity.rank == 0 || !context_.table->NewerCommitted(job->step)) return {};
  Verdict verdict = Verdict::kPending;
  std::string why;
  if (!context_.meeting->Look(job->step, &verdict, &why).ok()) return {};
  return Heed(job, verdict, why);
}

Status Transfer::AwaitRank0(const JobRef& job) {
  const Options& options = context_.options;
  if (!options.bounded || options.identity.rank == 0 || !job->lost.ok()) return {};
  constexpr uint64_t kLongestPauseMs = 50;
  JobTable* table = context_.table;
  const uint64_t begin_us = context_.env->NowMicros();
  const auto waited_ms = [&] { return (context_.env->NowMicros() - begin_us) / 1000; };
  Status looked;
  for (uint64_t pause_ms = 1;; pause_ms = std::min(2 * pause_ms, kLongestPauseMs)) {
    PartialState roll;
    std::string failure;
    looked = context_.meeting->Roll(job->step, &roll, &failure);
    Verdict verdict = Verdict::kPending;
    if (looked.ok() && !roll.exists) looked = context_.meeting->Look(job->step, &verdict, &failure);
    if (looked.ok()) DF_RETURN_IF_ERROR(Heed(job, verdict, failure));
    if (looked.ok() && !failure.empty()) return Status(Code::kIncomplete, failure);
    if (looked.ok() && (roll.exists || verdict == Verdict::kCommitted)) break;
    if (table->stopping()) return Status(Code::kClosed, "the engine is shutting down");
    if (std::min(waited_ms(), table->IdleMs()) >= options.commit_timeout_ms) {
      return looked.ok() ? Status(Code::kTimeout, "rank 0 has not begun the step in the run within " +
                                                      std::to_string(options.commit_timeout_ms) + " ms")
                         : looked;
    }
    if (pause_ms == 1) table->SetWaitsFor(job, "waits for rank 0, which waits for room in the run");
    table->Pause(pause_ms);
  }
  table->SetWaitsFor(job, std::string());
  return {};
}

Status Transfer::Move(const JobRef& job) {
  DF_RETURN_IF_ERROR(GivenUp(job));
  if (job->shard == nullptr) job->shard = context_.store->OpenShard(context_.options.At(job->step));
  ShardWriter* shard = job->shard.get();
  bool kept = false;
  const bool in_parts = job->home == Home::kBuffer;
  DF_RETURN_IF_ERROR(shard->Begin(in_parts ? &kept : nullptr));
  if (in_parts && !kept) context_.table->ReadAgain(job, kExternal);
  job->external_bytes = 0;
  // Without direct writes every byte is copied to the page cache, so no more threads work than may copy at a time. With
  // them the pool's limit alone counts, also if it changes meanwhile.
  const size_t width = shard->direct() ? context_.pool->threads() : Copiers(*context_.pool);
  // The local level works on the job at the same time, and computes the checksums. Without it they are computed here,
  // together with the writes.
  const bool known = job->checksummed || context_.table->AwaitSettled(job, kLocal, Deadline(0)) != LevelState::kFailed;
  {
    const BusyClock::Running writing(&context_.counters->external.writing);
    for (size_t first = 0; first < job->runs.size() - 1;) {
      uint64_t bytes = 0;
      const size_t n = Turn(*job, first, &bytes);
      DF_RETURN_IF_ERROR(AwaitTurn(job, bytes));
      DF_RETURN_IF_ERROR(ForEachExtent(context_, n, width, false, [&](size_t worker, size_t i) {
        DF_RETURN_IF_ERROR(GivenUp(job));
        return MoveRun(job, job->order[first + i], known, kept, Sink{nullptr, nullptr, shard, &blocks_[worker]});
      }));
      first += n;
    }
  }
  // An earlier try, of which parts are kept, may have left the checksums to a local level that has failed since.
  if ((known || in_parts) && !job->checksummed) DF_RETURN_IF_ERROR(TakeChecksums(job));
  job->checksummed = true;
  BestEffort([&] { TellIfCached(*shard); });
  return {};
}

size_t Transfer::Turn(const Job& job, size_t first, uint64_t* bytes) const {
  const size_t runs = job.runs.size() - 1;
  if (context_.options.rate == 0) return runs - first;
  // Of a quarter of a second, so that the store is never offered a whole second's bytes at once but after a pause.
  const uint64_t most = context_.options.rate / 4;
  size_t n = 0;
  for (; first + n < runs; ++n) {
    const uint64_t run = BytesOfRun(job, job.order[first + n]);
    if (n > 0 && *bytes + run > most) break;
    *bytes += run;
  }
  return n;
}

// The stage's threads wait. A thread of the pool that waited would be missing to the local tier, and to training.
Status Transfer::AwaitTurn(const JobRef& job, uint64_t bytes) {
  if (context_.options.rate == 0) return {};
  constexpr uint64_t kSliceMs = 100;
  uint64_t now_us = 0;
  uint64_t turn_us = 0;
  {
    const MutexLock lock(&mutex_);
    now_us = context_.env->NowMicros();
    turn_us = now_us + bucket_.Take(bytes, now_us);
  }
  for (; now_us < turn_us; now_us = context_.env->NowMicros()) {
    context_.table->Pause(std::min(kSliceMs, (turn_us - now_us + 999) / 1000));
    if (context_.table->stopping()) return Status(Code::kClosed, "the engine is shutting down");
    context_.progress->Moved(job);
  }
  return {};
}

void Transfer::TellIfCached(const ShardWriter& shard) {
  const MutexLock lock(&mutex_);
  if (told_) return;
  const std::string why = shard.CachedBecause();
  if (why.empty()) return;
  context_.table->Notify(context_.store->place() + ": direct writes (O_DIRECT) are not to be had there (" + why +
                         "); checkpoints go through the page cache, which takes more of the processor and of memory");
  told_ = true;
}

Status Transfer::TakeChecksums(const JobRef& job) {
  if (Reached(context_.table->AwaitSettled(job, kLocal, CondVar::Time::max()))) return {};
  if (context_.table->stopping()) return Status(Code::kClosed, "the engine is shutting down");
  // The local tier has failed, and its writer may not have computed all checksums. What it has read has its checksum,
  // and may be in the hands of the next capture.
  return ForEachExtent(context_, job->extents.size(), Copiers(*context_.pool), false, [&](size_t, size_t i) -> Status {
    DF_RETURN_IF_ERROR(GivenUp(job));
    if (job->summed[i] || context_.table->HasRead(job, kLocal, i, 1)) return Status();
    job->extents[i].crc = Crc32c(0, job->sources[i], static_cast<size_t>(job->extents[i].size));
    return Status();
  });
}

Status Transfer::MoveRun(const JobRef& job, size_t run, bool known, bool kept, const Sink& to) {
  const size_t first = job->runs[run];
  const size_t n = job->runs[run + 1] - first;
  Extent* extents = &job->extents[first];
  const auto moved = [&] {
    context_.table->DoneReading(job, kExternal, first, n);
    job->external_bytes += BytesOfRun(*job, run);
    context_.progress->Moved(job);
  };
  const bool written = context_.table->HasRead(job, kExternal, first, n);
  if (written && kept) {
    job->external_bytes += BytesOfRun(*job, run);
    return {};
  }
  if (context_.table->BeginRead(job, first, n)) {
    const Status status = Contained([&] {  // no exception may keep EndRead from being called
      const char* const* from = &job->sources[first];
      const auto summed = std::next(job->summed.begin(), static_cast<ptrdiff_t>(first));
      const bool all_summed =
          std::all_of(summed, std::next(summed, static_cast<ptrdiff_t>(n)), [](bool one) { return one; });
      return n > 1 ? WriteGathered(from, to, known || all_summed, extents, n)
                   : WriteExtent(*from, to, extents->file_offset, known || all_summed, extents);
    });
    context_.table->EndRead(job);
    if (status.ok()) moved();
    return status;
  }
  if (written && !context_.table->OnSlot(job)) {
    return Status(Code::kIncomplete, context_.store->place() + ": what was written of step " +
                                         std::to_string(job->step) + " is gone, and a newer checkpoint has its memory");
  }
  File* slot = context_.slots->file(static_cast<uint32_t>(job->slot));
  for (size_t i = 0; i < n; ++i) DF_RETURN_IF_ERROR(CopyVerified(slot, job->layout.places[first + i], to, extents[i]));
  moved();
  return {};
}

}  // namespace deepfreeze
