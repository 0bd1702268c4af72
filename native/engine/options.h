// The options of an engine: df_options in C++, which says what each field means.
#ifndef DEEPFREEZE_ENGINE_OPTIONS_H_
#define DEEPFREEZE_ENGINE_OPTIONS_H_

#include <string>
#include <vector>

#include "format/identity.h"

namespace deepfreeze {

// Which steps fail if their ranks differ: df_refusal in C++.
enum class Refuse { kNone = 0, kAll = 1, kFirst = 2 };

struct Options {
  Identity identity;  // without the step
  uint32_t in_flight = 1;
  uint32_t slots = 1;
  uint32_t writers = 1;
  int nice = 0;
  Refuse refuse_diverged = Refuse::kNone;
  uint64_t chunk_bytes = 4096;
  uint64_t commit_timeout_ms = 0;
  uint64_t uncommitted = 0;  // how many checkpoints may be; 0: as many as in_flight and slots allow
  uint32_t transfers = 1;    // how many checkpoints may be written to the external store at once
  bool cached = false;       // writes to the run go through the page cache
  bool one_memory = false;   // in_flight bounds what captures hold in buffers, slots in memory and the caller's memory
  bool bounded = false;      // rank 0's caller bounds the bytes of the run
  uint64_t rate = 0;         // bytes per second to the external store; 0: as fast as it takes them
  std::string run_dir;       // the run, unless the engine is given another store
  std::string local_dir;     // empty: no local tier
  std::vector<uint32_t> node;  // the ranks of this rank's node, ascending; empty: it may be alone there
  std::string node_dir;        // in the memory that they share; empty: none

  // The identity of a step.
  Identity At(int64_t step) const {
    Identity at = identity;
    at.step = step;
    return at;
  }
};

// The options that may be set anew while the engine runs, as far as it was opened with them. As in Options.
struct Tuning {
  uint64_t writers = 1;
  uint64_t transfers = 1;
  uint64_t uncommitted = 0;  // 0: as many as the engine was opened with
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_OPTIONS_H_
