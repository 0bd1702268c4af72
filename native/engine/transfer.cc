#include "engine/transfer.h"

#include "base/crc32c.h"
#include "engine/patience.h"
#include "store/partial.h"

namespace deepfreeze {

void Transfer::Run() {
  while (const JobRef job = context_.table->NextForTransfer()) {
    const auto move = [&] { return job->lost.ok() ? Move(job) : job->lost; };
    Status status = Patiently(context_, job, move);
    // Without room on the store, what failed steps have left there is removed first, and the step written again.
    if (status.code() == Code::kNoSpace && context_.options.identity.rank == 0 && retention_->MakeRoom(job->step)) {
      status = Patiently(context_, job, move);
    }
    if (status.ok()) {
      context_.table->FinishTransfer(job);
    } else if (status.code() == Code::kClosed) {
      return;
    } else {
      job->partial.reset();
      FailStep(context_, job, std::move(status));
    }
  }
}

Status Transfer::Move(const JobRef& job) {
  const Identity identity = context_.options.At(job->step);
  if (job->partial == nullptr) job->partial = std::make_unique<PartialWriter>();
  PartialWriter* partial = job->partial.get();
  DF_RETURN_IF_ERROR(partial->Open(context_.env, context_.options.run_dir, identity));
  // Without direct writes every byte is copied to the page cache, so no more threads work than may copy at a time.
  const size_t width = partial->direct() != nullptr ? context_.pool->threads() : Copiers(context_.options);
  DF_RETURN_IF_ERROR(ForEachExtent(context_, job->runs.size() - 1, width, false, [&](size_t worker, size_t run) {
    return MoveRun(job, run, Sink{partial->file(), partial->direct(), &blocks_[worker]});
  }));
  if (job->home_is_slot) DF_RETURN_IF_ERROR(TakeChecksums(job));
  job->checksummed = true;
  BestEffort([&] { TellIfCached(*partial); });
  return {};
}

void Transfer::TellIfCached(const PartialWriter& partial) {
  if (told_) return;
  const std::string why = partial.CachedBecause();
  if (why.empty()) return;
  context_.table->Notify(context_.options.run_dir + ": direct writes (O_DIRECT) are not to be had there (" + why +
                         "); checkpoints go through the page cache, which takes more of the processor and of memory");
  told_ = true;
}

Status Transfer::TakeChecksums(const JobRef& job) {
  context_.table->AwaitChecked(job);
  if (context_.table->stopping()) return Status(Code::kClosed, "the engine is shutting down");
  if (job->on_slot) return {};
  // The local tier has failed, and its writer may not have computed all checksums.
  return ForEachExtent(context_, job->extents.size(), Copiers(context_.options), false, [&](size_t, size_t i) {
    job->extents[i].crc = Crc32c(0, job->sources[i], static_cast<size_t>(job->extents[i].size));
    return Status();
  });
}

Status Transfer::MoveRun(const JobRef& job, size_t run, const Sink& to) {
  const size_t first = job->runs[run];
  const size_t n = job->runs[run + 1] - first;
  Extent* extents = &job->extents[first];
  if (context_.table->BeginRead(job)) {
    const Status status = Contained([&] {  // no exception may keep EndRead from being called
      const char* const* from = &job->sources[first];
      // Of a step that was captured in its slot, the local writer computes the checksums meanwhile.
      const bool known = job->home_is_slot || job->checksummed;
      return n > 1 ? WriteGathered(from, to, known, extents, n)
                   : WriteExtent(*from, to, extents->file_offset, known, extents);
    });
    context_.table->EndRead(job);
    if (status.ok()) context_.progress->Moved(job);
    return status;
  }
  File* slot = context_.slots->file(static_cast<uint32_t>(job->slot));
  for (size_t i = 0; i < n; ++i) DF_RETURN_IF_ERROR(CopyVerified(slot, job->places[first + i], to, extents[i]));
  context_.progress->Moved(job);
  return {};
}

}  // namespace deepfreeze
