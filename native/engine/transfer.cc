#include "engine/transfer.h"

#include "engine/checksum.h"
#include "store/partial.h"

namespace deepfreeze {

void Transfer::Run() {
  while (const JobRef job = context_.table->NextForTransfer()) {
    const auto move = [&] { return Move(job); };
    Status status = Contained(move);
    // A step that failed for want of room must not keep the next ones from finding any.
    if (status.code() == Code::kNoSpace && context_.options.identity.rank == 0 && retention_->MakeRoom(job->step)) {
      status = Contained(move);
    }
    if (status.ok()) {
      context_.table->FinishTransfer(job);
    } else if (status.code() == Code::kClosed) {
      return;
    } else {
      // The others need not wait for a record that won't come. If even this fails, they wait until their bound.
      const Identity identity = context_.options.At(job->step);
      const std::string& run_dir = context_.options.run_dir;
      (void)context_.env->MakeDir(PartialPath(run_dir, identity.step, identity.attempt), 0777).ok();
      (void)Contained([&] { return MarkFailed(context_.env, run_dir, identity, status.message()); }).ok();
      context_.table->Fail(job, status);
    }
  }
}

Status Transfer::Move(const JobRef& job) {
  CutExtents(job.get(), context_.options.chunk_bytes);
  const Identity identity = context_.options.At(job->step);
  PartialWriter partial;
  DF_RETURN_IF_ERROR(partial.Open(context_.env, context_.options.run_dir, identity));
  DF_RETURN_IF_ERROR(ForEachExtent(context_, job->extents.size(), false, [&](size_t worker, size_t i) {
    return MoveExtent(job, worker, i, partial.file());
  }));
  job->checksummed = true;
  return partial.Publish(Record{identity, job->extents, job->private_data});
}

Status Transfer::MoveExtent(const JobRef& job, size_t worker, size_t i, File* to) {
  Extent* extent = &job->extents[i];
  Status status;
  if (context_.table->BeginRead(job)) {
    const char* from = job->sources[i];
    status = Contained([&] {  // for EndRead must follow
      return job->checksummed ? WriteFull(to, extent->file_offset, from, extent->size)
                              : WriteChecksummed(from, to, extent->file_offset, extent);
    });
    context_.table->EndRead(job);
  } else {
    std::string& block = blocks_[worker];
    block.resize(kBlockBytes);
    File* from = context_.slots->file(static_cast<uint32_t>(job->slot));
    status = CopyVerified(from, job->places[i], to, *extent, block.data());
  }
  // The disk begins while other chunks are still being copied; the sync at the end then waits for less.
  if (status.ok()) to->StartWriteback(extent->file_offset, extent->size);
  return status;
}

}  // namespace deepfreeze
