#include "engine/local_write.h"

#include <algorithm>

#include "base/crc32c.h"
#include "engine/checksum.h"

namespace deepfreeze {

Status LocalWriter::Protect(const JobRef& shard, size_t) {
  JobTable* table = context_.table;
  if (!table->local_tier()) return Status(Code::kNoSpace, "no local tier");
  const int slot = table->AcquireSlot(shard);
  if (table->stopping()) return Status(Code::kClosed, "the engine is shutting down");
  DF_RETURN_IF_ERROR(GivenUp(shard));
  if (slot == SlotPool::kNoSlot) return Status(Code::kNoSpace, "no slot");  // later steps have them all
  Status status = Contained([&] { return Write(shard, static_cast<uint32_t>(slot)); });
  if (table->stopping() && !status.ok()) return Status(Code::kClosed, "the engine is shutting down");
  if (!status.ok() && status.code() != Code::kSuperseded) BestEffort([&] { GiveUp(status); });
  return status;
}

Status LocalWriter::Write(const JobRef& job, uint32_t slot) {
  const SlotLayout& layout = job->layout;
  if (job->home != Home::kSlot) DF_RETURN_IF_ERROR(context_.slots->Begin(slot, layout.file_size()));
  File* const direct = context_.slots->direct(slot);
  job->local_bytes = 0;
  const auto write = [&](size_t worker, size_t i) {
    context_.table->Moved();
    if (job->superseded_by >= 0) return Status(Code::kSuperseded, "");
    Extent* extent = &job->extents[i];
    const Sink to{context_.slots->file(slot), extent->size < kSmallExtent ? nullptr : direct, nullptr,
                  &blocks_[worker]};
    const char* from = job->sources[i];
    if (job->home != Home::kSlot || from != job->base + layout.places[i]) {
      DF_RETURN_IF_ERROR(WriteExtent(from, to, layout.places[i], job->summed[i], extent));
    } else if (!job->summed[i]) {
      extent->crc = Crc32c(0, from, extent->size);  // the capture has put the bytes into their place in the slot
    }
    context_.table->DoneReading(job, kLocal, i, 1);
    job->local_bytes += extent->size;
    return Status();
  };
  if (job->home == Home::kSlot) {
    // Only checksums are needed. This thread computes them alone, so that the writers can keep the disk busy.
    for (size_t i = 0; i < job->extents.size(); ++i) {
      if (context_.table->stopping()) return Status(Code::kClosed, "the engine is shutting down");
      DF_RETURN_IF_ERROR(write(0, i));
    }
  } else {
    const BusyClock::Running writing(&context_.counters->local.writing);
    // Half of the threads are left to the transfer, which works on the job at the same time.
    const size_t width = direct != nullptr ? (context_.pool->limit() + 1) / 2 : Copiers(*context_.pool);
    DF_RETURN_IF_ERROR(ForEachExtent(context_, job->order.size(), width, true, [&](size_t worker, size_t number) {
      const size_t run = job->order[number];
      for (size_t i = job->runs[run]; i < job->runs[run + 1]; ++i) DF_RETURN_IF_ERROR(write(worker, i));
      return Status();
    }));
  }
  // Behind the whole memory of a capture, which is the same for each capture; the values have any size at each.
  const uint64_t end = std::max(layout.file_size(), job->base_size);
  return context_.slots->Finish(slot, context_.options.At(job->step), job->extents, layout, job->private_data,
                                job->values, end);
}

void LocalWriter::GiveUp(const Status& why) {
  const char* what = why.code() == Code::kNoSpace ? ": the local tier is full (" : ": the local tier failed (";
  context_.table->DropLocalTier(context_.options.local_dir + what + why.message() +
                                "); from now on checkpoints go directly to the external store");
  for (const uint32_t slot : context_.table->IdleSlots()) context_.slots->Remove(slot);
}

}  // namespace deepfreeze
