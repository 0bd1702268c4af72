#include "engine/transfer.h"

#include "engine/checksum.h"
#include "store/partial.h"

namespace deepfreeze {

void Transfer::Run() {
  while (const JobRef job = context_.table->NextForTransfer()) {
    const Status status = Move(job);
    if (status.ok()) {
      context_.table->FinishTransfer(job);
    } else if (status.code() == Code::kClosed) {
      return;
    } else {
      // The others need not wait for a record that won't come. If even this fails, they wait until their bound.
      (void)MarkFailed(context_.env, context_.options.run_dir, context_.options.At(job->step), status.message()).ok();
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
    status = job->checksummed ? WriteFull(to, extent->file_offset, from, extent->size)
                              : WriteChecksummed(from, to, extent->file_offset, extent);
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
