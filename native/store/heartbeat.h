// RUN/step-N.partial-ATTEMPT/rank-RRRRR-K.alive: how a rank that takes long to write its part of a step shows the
// others that its bytes move. The number K grows. It is in the name, so that a beat is one rename, and who waits sees
// it in the listing that it makes anyhow.
#ifndef DEEPFREEZE_STORE_HEARTBEAT_H_
#define DEEPFREEZE_STORE_HEARTBEAT_H_

#include <map>
#include <string>

#include "base/env.h"
#include "store/partial.h"

namespace deepfreeze {

// The writer's side: of one rank and step.
class Heartbeat {
 public:
  Heartbeat(const std::string& run_dir, const Identity& identity);
  // Shows one more. Where that fails the others see it next time; a directory that is not there is not made.
  void Beat(Env* env);

 private:
  std::string Path(uint64_t number) const;

  const std::string directory_;
  const uint32_t rank_;
  uint64_t number_ = 0;
};

// The reader's side: of one step.
class Pulse {
 public:
  // Whether something moved since the last look: a record came, or a rank without one has shown a heartbeat. False for
  // the first look, which says nothing of when.
  bool Moved(const PartialState& state);

 private:
  bool looked_ = false;
  size_t records_ = 0;
  std::map<uint32_t, uint64_t> beats_;  // the greatest number of each rank: a listing may miss a name that changes
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_HEARTBEAT_H_
