// The engine's own memory for captures: the training's graph writes into it, and what it wrote needs no copy any more.
// On a memory-backed local tier it is the slots themselves, so a capture is on the local tier as soon as its checksums
// are known; otherwise pages of the process.
//
// Every buffer is laid out as a slot, so a region lies at the same place in all of them.
#ifndef DEEPFREEZE_ENGINE_CAPTURE_MEMORY_H_
#define DEEPFREEZE_ENGINE_CAPTURE_MEMORY_H_

#include <mutex>
#include <thread>
#include <vector>

#include "base/pages.h"
#include "engine/stage.h"

namespace deepfreeze {

// What every captured checkpoint of a run of the engine consists of.
struct CapturePlan {
  std::vector<uint64_t> places;  // of each region, in a buffer
  uint64_t side = 0;             // where bytes begin that belong to no region
  uint64_t size = 0;             // of a buffer
};

class CaptureMemory {
 public:
  explicit CaptureMemory(const StageContext& context) : context_(context) {}
  ~CaptureMemory();
  CaptureMemory(const CaptureMemory&) = delete;
  CaptureMemory& operator=(const CaptureMemory&) = delete;

  // Once, before the first Reserve: lays out the buffers and begins to touch them in the background.
  Status Plan(const std::vector<Region>& regions, uint64_t private_size, uint64_t side_size, CapturePlan* plan);

  // The buffer for the next capture, the same one until it is submitted. Waits while all are in use.
  Status Reserve(uint64_t timeout_ms, char** base);

  // Of each buffer, once there is a plan.
  uint64_t size() const { return size_; }

  // Whether captures go straight into slots.
  bool UsesSlots() const;

  // Ends the background work.
  void Stop();

 private:
  Status ReserveSlot(uint64_t timeout_ms, char** base);
  Status ReservePages(uint64_t timeout_ms, char** base);
  void TouchAll();
  char* Buffer(uint32_t number);

  const StageContext context_;
  bool in_memory_ = false;
  uint64_t size_ = 0;
  std::mutex mutex_;  // guards pages_
  std::vector<std::shared_ptr<Pages>> pages_;
  std::thread toucher_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_CAPTURE_MEMORY_H_
