#include "engine/capture_memory.h"

#include "base/thread.h"
#include "engine/checksum.h"

namespace deepfreeze {

CaptureMemory::CaptureMemory(const StageContext& context)
    : context_(context),
      stopping_([table = context.table] { return table->stopping(); }),
      buffers_(context.options.in_flight) {}

CaptureMemory::~CaptureMemory() { Stop(); }

void CaptureMemory::Stop() {
  if (toucher_.joinable()) toucher_.join();
}

Status LayOutCapture(const std::vector<Region>& regions, uint64_t private_size, uint64_t side_size,
                     uint64_t chunk_bytes, CapturePlan* plan) {
  Job job;
  job.regions = regions;
  CutExtents(&job, chunk_bytes);
  const SlotLayout layout = LayOutSlot(job.extents, private_size);
  plan->places.clear();
  size_t first = 0;  // the number of the region's first extent
  for (const Region& region : regions) {
    plan->places.push_back(region.size == 0 ? layout.data_offset : layout.places[first]);
    first += CountExtents(region.size, chunk_bytes);
  }
  plan->side = (layout.file_size() + kDirectUnit - 1) / kDirectUnit * kDirectUnit;
  if (plan->side > kMaxFileSize || side_size > kMaxFileSize - plan->side) {
    return Status::FourPart(Code::kInvalid, "plan", "a memory of at most " + std::to_string(kMaxFileSize) + " bytes",
                            std::to_string(plan->side) + " bytes and side bytes of " + std::to_string(side_size),
                            "Correct the sizes");
  }
  plan->size = plan->side + side_size;
  return {};
}

Status CaptureMemory::Plan(const std::vector<Region>& regions, uint64_t private_size, uint64_t side_size,
                           CapturePlan* plan) {
  if (size_ != 0) return Status(Code::kInvalid, "plan: made already");
  DF_RETURN_IF_ERROR(LayOutCapture(regions, private_size, side_size, context_.options.chunk_bytes, plan));
  size_ = plan->size;
  in_memory_ = context_.slots != nullptr && context_.slots->InMemory();
  toucher_ = std::thread([this] {
    BecomeBackgroundThread("df-touch", context_.options.nice);
    const ThreadClocks::Running clock(&context_.counters->threads, "df-touch");
    BestEffort([this] { TouchAll(); });
  });
  return {};
}

bool CaptureMemory::UsesSlots() const { return in_memory_ && context_.table->local_tier(); }

// Writes to all memory of captures once, so that its pages exist. An error is ignored: the same error comes again when
// the memory is reserved, and is handled there.
void CaptureMemory::TouchAll() {
  const bool slots = UsesSlots();
  // If the local tier is given up its slots are removed.
  const auto stop = [&] { return context_.table->stopping() || (slots && !context_.table->local_tier()); };
  const uint32_t count = slots ? context_.options.slots : context_.options.in_flight;
  for (uint32_t i = 0; i < count && context_.table->AwaitRoomFor(i) && !stop(); ++i) {
    if (slots) {
      (void)context_.slots->Touch(i, size_, stop).ok();
      if (i == 0 && context_.options.identity.rank == 0 && context_.slots->WantsHugePages()) TellOfSmallPages();
    } else {
      (void)Touched(i);
    }
  }
}

void CaptureMemory::TellOfSmallPages() {
  context_.table->Notify(
      context_.options.local_dir +
      ": memory there comes in pages of 4 KiB. With huge pages, checkpoints take less of the processor: have that "
      "file system mounted with the option huge=within_size");
}

Status CaptureMemory::Obtain(uint64_t timeout_ms, char** base) {
  if (size_ == 0) return Status(Code::kInvalid, "reserve: there is no plan");
  *base = context_.table->reserved_base();
  if (*base != nullptr) return {};
  if (UsesSlots()) {
    const Status status = InSlot(timeout_ms, base);
    if (status.ok() || status.code() == Code::kClosed || status.code() == Code::kTimeout) return status;
    context_.table->DropLocalTier(context_.options.local_dir + ": the local tier has no memory for a capture (" +
                                  status.message() + "); from now on checkpoints go directly to the external store");
  }
  return InPages(timeout_ms, base);
}

Status CaptureMemory::InSlot(uint64_t timeout_ms, char** base) {
  int slot = SlotPool::kNoSlot;
  DF_RETURN_IF_ERROR(context_.table->Reserve(Home::kSlot, timeout_ms, &slot));
  const Status status = context_.slots->Map(static_cast<uint32_t>(slot), size_, stopping_, base);
  if (status.ok()) {
    context_.table->Bind(*base, size_, context_.options.chunk_bytes);
  } else {
    context_.table->Unreserve();
  }
  return status;
}

Status CaptureMemory::InPages(uint64_t timeout_ms, char** base) {
  int number = SlotPool::kNoSlot;
  DF_RETURN_IF_ERROR(context_.table->Reserve(Home::kBuffer, timeout_ms, &number));
  if (context_.options.one_memory && in_memory_) {  // slots of a local tier that was given up
    for (const uint32_t slot : context_.table->IdleSlots()) context_.slots->Remove(slot);
  }
  *base = Touched(static_cast<uint32_t>(number));
  if (*base == nullptr) {
    context_.table->Unreserve();
    if (context_.table->stopping()) return Status(Code::kClosed, "the engine is shutting down");
    return Status(Code::kIo, "no memory for a capture of " + std::to_string(size_) + " bytes");
  }
  context_.table->Bind(*base, size_, context_.options.chunk_bytes);
  return {};
}

char* CaptureMemory::Touched(uint32_t number) {
  Buffer& buffer = buffers_[number];
  const MutexLock lock(&buffer.mutex);
  if (buffer.pages == nullptr) buffer.pages = Pages::Allocate(context_.env, size_, stopping_);
  return buffer.pages == nullptr ? nullptr : buffer.pages->data();
}

}  // namespace deepfreeze
