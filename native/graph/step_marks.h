// The marks of a training's step: each has a number, and notes when its op runs. The times between them say how long
// each part of the step takes, how busy the cores are in it, and how much the engine writes meanwhile, in how much
// time.
#ifndef DEEPFREEZE_GRAPH_STEP_MARKS_H_
#define DEEPFREEZE_GRAPH_STEP_MARKS_H_

#include <atomic>
#include <memory>
#include <vector>

#include "base/env.h"
#include "engine/engine.h"

namespace deepfreeze {

class StepMarks {
 public:
  static constexpr uint64_t kMost = 4096;

  // What a mark has noted.
  struct Mark {
    uint64_t at_us = 0;           // when its op ran, by a clock that never jumps; 0: it has not run
    uint64_t cpu_us = 0;          // CPU time of all threads of the process until then
    uint64_t external_bytes = 0;  // that the engine had written to the external store
    uint64_t local_bytes = 0;     // and to the local tier
    uint64_t external_us = 0;     // for how long it had been writing to the external store
    uint64_t local_us = 0;        // and to the local tier
  };

  // REQUIRES: env outlives this.
  explicit StepMarks(Env* env) : env_(env) {}
  StepMarks(const StepMarks&) = delete;
  StepMarks& operator=(const StepMarks&) = delete;

  // All but Note must be called between two executions of the graph.

  // Marks number 0 to n - 1 note from now on, the others nothing. RETURNS kInvalid for more than kMost.
  Status Set(uint64_t n);
  // The engine whose bytes are noted; null: none.
  void Watch(const std::shared_ptr<Engine>& engine) { engine_ = engine; }
  // A mark notes anew. Does nothing without such a mark. Thread-safe.
  void Note(uint64_t number);
  // RETURNS what the marks have noted since the last Take, or Set.
  std::vector<Mark> Take();

 private:
  struct Slot {
    std::atomic<uint64_t> at_us{0};
    std::atomic<uint64_t> cpu_us{0};
    std::atomic<uint64_t> external_bytes{0};
    std::atomic<uint64_t> local_bytes{0};
    std::atomic<uint64_t> external_us{0};
    std::atomic<uint64_t> local_us{0};
  };

  Env* const env_;
  uint64_t n_ = 0;
  std::unique_ptr<Slot[]> slots_;
  std::weak_ptr<Engine> engine_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_GRAPH_STEP_MARKS_H_
