// The engine's own memory for captures: the training's graph writes into it, and the stages read from there without a
// further copy. It consists of buffers, one for each capture. On a memory-backed local tier the buffers are the slots
// themselves, so a capture is on the local tier as soon as its checksums are known. Otherwise they are pages of the
// process, and the next capture gets a buffer part by part while the last one is still being written from it
// (JobTable::Reserve).
//
// All buffers have the layout of a slot, so a region lies at the same place in each of them.
#ifndef DEEPFREEZE_ENGINE_CAPTURE_MEMORY_H_
#define DEEPFREEZE_ENGINE_CAPTURE_MEMORY_H_

#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/pages.h"
#include "engine/stage.h"

namespace deepfreeze {

// The layout of a buffer, the same for all captures of one engine. In bytes from the buffer's beginning.
struct CapturePlan {
  std::vector<uint64_t> places;  // where each region begins
  uint64_t side = 0;             // where the side bytes begin, which belong to no region
  uint64_t size = 0;             // of the whole buffer
};

// RETURNS kInvalid if a buffer would be too large. Sizes in bytes; chunk_bytes is the largest extent.
Status LayOutCapture(const std::vector<Region>& regions, uint64_t private_size, uint64_t side_size,
                     uint64_t chunk_bytes, CapturePlan* plan);

// Plan is called once, before all other methods; then they may be called from any thread, Obtain by one at a time.
class CaptureMemory {
 public:
  explicit CaptureMemory(const StageContext& context);
  ~CaptureMemory();
  CaptureMemory(const CaptureMemory&) = delete;
  CaptureMemory& operator=(const CaptureMemory&) = delete;

  // Lays out the buffers and starts a thread that makes them and touches their pages. Sizes in bytes. RETURNS kInvalid
  // if there is a plan already, or a buffer would be too large.
  Status Plan(const std::vector<Region>& regions, uint64_t private_size, uint64_t side_size, CapturePlan* plan);

  // *base: the buffer for the next capture, the same one at each call until it is submitted. Waits, at most timeout_ms,
  // while all buffers are in use; longer where the memory of the buffer is still being touched. Parts of a buffer may
  // still be in use: JobTable::TakeParts waits for them. If the slots' memory
  // can't be had, the engine gives up the local tier, with a notice, and captures go into pages of the process.
  Status Obtain(uint64_t timeout_ms, char** base);

  // Bytes of each buffer; 0 without a plan.
  uint64_t size() const { return size_; }

  // Whether the buffers are slots.
  bool UsesSlots() const;

  // Joins the thread that touches pages, which leaves off at its next piece. REQUIRES: the job table is stopped.
  void Stop();

 private:
  Status InSlot(uint64_t timeout_ms, char** base);
  Status InPages(uint64_t timeout_ms, char** base);
  void TouchAll();
  void TellOfSmallPages();
  // The memory of a buffer, which is touched first; null if there is none, or if the engine is stopping.
  char* Touched(uint32_t number);

  struct Buffer {
    Mutex mutex;  // of this buffer alone: whoever wants it does not wait for another one to be touched
    std::shared_ptr<Pages> pages GUARDED_BY(mutex);
  };

  const StageContext context_;
  const StopWhen stopping_;
  bool in_memory_ = false;
  uint64_t size_ = 0;
  std::vector<Buffer> buffers_;
  std::thread toucher_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_CAPTURE_MEMORY_H_
