#include "engine/local_write.h"

#include <algorithm>

#include "base/crc32c.h"
#include "engine/checksum.h"

namespace deepfreeze {

void LocalWriter::Run() {
  JobTable* table = context_.table;
  while (const JobRef job = table->NextForLocal()) {
    bool whole = false;
    const Status status = Contained([&] { return ToSlot(job, &whole); });
    if (whole) {
      table->FinishLocal(job);
      continue;
    }
    if (table->stopping()) return;
    if (!status.ok()) BestEffort([&] { GiveUp(status); });
    table->SkipLocal(job);
  }
}

Status LocalWriter::ToSlot(const JobRef& job, bool* whole) {
  if (!context_.table->local_tier()) return {};
  const int slot = context_.table->AcquireSlot(job);
  if (slot < 0 || context_.table->stopping()) return {};
  DF_RETURN_IF_ERROR(Write(job, static_cast<uint32_t>(slot)));
  *whole = true;
  return {};
}

Status LocalWriter::Write(const JobRef& job, uint32_t slot) {
  const SlotLayout layout = LayOutSlot(job->extents, job->private_data.size());
  if (!job->home_is_slot) DF_RETURN_IF_ERROR(context_.slots->Begin(slot, layout.file_size()));
  const Sink to{context_.slots->file(slot), nullptr, nullptr};
  const auto write = [&](size_t, size_t i) {
    context_.table->Moved();
    Extent* extent = &job->extents[i];
    const char* from = job->sources[i];
    if (!job->home_is_slot || from != job->home + layout.places[i]) {
      return WriteExtent(from, to, layout.places[i], false, extent);
    }
    extent->crc = Crc32c(0, from, extent->size);  // the capture has put the bytes into their place in the slot
    return Status();
  };
  if (job->home_is_slot) {
    // Only checksums are needed. This thread computes them alone, so that the writers can keep the disk busy.
    for (size_t i = 0; i < job->extents.size(); ++i) {
      if (context_.table->stopping()) return Status(Code::kClosed, "the engine is shutting down");
      DF_RETURN_IF_ERROR(write(0, i));
    }
  } else {
    DF_RETURN_IF_ERROR(ForEachExtent(context_, job->extents.size(), Copiers(context_.options), true, write));
  }
  // Behind the whole memory of a capture, which is the same for each capture; the values have any size at each.
  const uint64_t end = std::max(layout.file_size(), job->home_is_slot ? job->home_size : 0);
  DF_RETURN_IF_ERROR(context_.slots->Finish(slot, context_.options.At(job->step), job->extents, layout,
                                            job->private_data, job->values, end));
  if (!job->home_is_slot) {  // else the transfer has begun already, and waits for the checksums by AwaitChecked
    job->places = layout.places;
    job->checksummed = true;
  }
  return {};
}

void LocalWriter::GiveUp(const Status& why) {
  const char* what = why.code() == Code::kNoSpace ? ": the local tier is full (" : ": the local tier failed (";
  context_.table->DropLocalTier(context_.options.local_dir + what + why.message() +
                                "); from now on checkpoints go directly to the external store");
  for (const uint32_t slot : context_.table->IdleSlots()) context_.slots->Remove(slot);
}

}  // namespace deepfreeze
