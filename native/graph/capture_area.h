// Where a training's graph puts what it captures: one buffer per checkpoint, filled group by group from the framework's
// threads, in the engine's memory. Before there is an engine (the first step is captured before the layout is known),
// in memory of its own.
//
// Capture may be called from several threads at once, for different groups; everything else between two executions of
// the graph.
#ifndef DEEPFREEZE_GRAPH_CAPTURE_AREA_H_
#define DEEPFREEZE_GRAPH_CAPTURE_AREA_H_

#include <memory>
#include <mutex>
#include <vector>

#include "base/pages.h"
#include "engine/engine.h"

namespace deepfreeze {

class CaptureArea {
 public:
  // Bytes [start, start + size) of a group's source number `source` go to `place` of the buffer.
  struct Piece {
    uint64_t source = 0;
    uint64_t start = 0;
    uint64_t size = 0;
    uint64_t place = 0;
  };
  struct Source {
    const char* data = nullptr;
    uint64_t size = 0;
  };

  explicit CaptureArea(Env* env) : env_(env) {}
  CaptureArea(const CaptureArea&) = delete;
  CaptureArea& operator=(const CaptureArea&) = delete;

  // Areas are known to the graph by number, so that a graph that outlives its area finds nothing instead of crashing.
  static uint64_t Register(std::shared_ptr<CaptureArea> area);
  // For `call`; null if there is none. kInvalid in a process that was forked from the area's.
  static Status Find(const char* call, uint64_t number, std::shared_ptr<CaptureArea>* area);
  // The areas' own memory that regions lie in.
  static std::vector<std::shared_ptr<Pages>> MemoryOf(const std::vector<Region>& regions);
  // Leaves the area of a process that this one was forked from as it is.
  static void Forget(uint64_t number);

  // kInvalid for a piece that no memory could have.
  Status SetGroup(size_t group, std::vector<Piece> pieces);
  // From the next capture on; null: memory of its own again. timeout_ms bounds the wait for memory.
  void Attach(const std::shared_ptr<Engine>& engine, uint64_t timeout_ms);

  // Copies one group's pieces. An error only for a call that makes no sense, and then nothing is copied: where there is
  // no memory for this capture the training goes on, and Collect says so.
  Status Capture(size_t group, const std::vector<Source>& sources);

  // Ends a capture: where its buffer is, and whether that is the area's own memory, which lasts until DropOwn, and for
  // a job that reads it as long as it does.
  Status Collect(char** base, bool* own);
  void DropOwn();

 private:
  Status Acquire();
  void SetOwn(std::shared_ptr<Pages> own);
  bool InOwn() const { return own_ != nullptr && base_ == own_->data(); }

  Env* const env_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const std::vector<Piece>>> groups_;
  std::weak_ptr<Engine> engine_;
  bool attached_ = false;
  uint64_t timeout_ms_ = 0;
  char* base_ = nullptr;  // of the capture under way, or of one that was not collected
  uint64_t size_ = 0;     // of that memory
  Status failure_;
  std::mutex own_mutex_;  // to change own_ takes both: a capture may hold the other for as long as it waits for memory
  std::shared_ptr<Pages> own_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_GRAPH_CAPTURE_AREA_H_
