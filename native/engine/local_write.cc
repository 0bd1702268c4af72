#include "engine/local_write.h"

#include "engine/checksum.h"

namespace deepfreeze {

void LocalWriter::Run() {
  JobTable* table = context_.table;
  while (const JobRef job = table->NextForLocal()) {
    if (!table->local_tier()) {
      table->SkipLocal(job);
      continue;
    }
    CutExtents(job.get(), context_.options.chunk_bytes);
    const int slot = table->AcquireSlot(job);
    if (slot < 0) return;
    const Status status = Contained([&] { return Write(job, static_cast<uint32_t>(slot)); });
    if (status.ok()) {
      table->FinishLocal(job);
    } else if (status.code() == Code::kClosed) {
      return;
    } else {
      GiveUp(status);
      table->SkipLocal(job);
    }
  }
}

Status LocalWriter::Write(const JobRef& job, uint32_t slot) {
  const SlotLayout layout = LayOutSlot(job->extents, job->private_data.size());
  DF_RETURN_IF_ERROR(context_.slots->Begin(slot, layout.file_size()));
  File* file = context_.slots->file(slot);
  DF_RETURN_IF_ERROR(ForEachExtent(context_, job->extents.size(), true, [&](size_t, size_t i) {
    return WriteChecksummed(job->sources[i], file, layout.places[i], &job->extents[i]);
  }));
  DF_RETURN_IF_ERROR(
      context_.slots->Finish(slot, context_.options.At(job->step), job->extents, layout, job->private_data));
  job->places = layout.places;
  job->checksummed = true;
  return {};
}

void LocalWriter::GiveUp(const Status& why) {
  const char* what = why.code() == Code::kNoSpace ? ": the local tier is full (" : ": the local tier failed (";
  context_.table->DropLocalTier(context_.options.local_dir + what + why.message() +
                                "); from now on checkpoints go directly to the external store");
  for (const uint32_t slot : context_.table->IdleSlots()) context_.slots->Remove(slot);
}

}  // namespace deepfreeze
