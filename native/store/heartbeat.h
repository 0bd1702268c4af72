// RUN/step-N.partial-ATTEMPT/rank-RRRRR-K.alive, the heartbeat: with this file a rank that takes long to write its part
// of a step shows the other ranks that its bytes move. The number K grows with each beat. As it is in the name, a beat
// costs one rename, and a rank that waits sees it when it calls the roll (store/meeting.h).
#ifndef DEEPFREEZE_STORE_HEARTBEAT_H_
#define DEEPFREEZE_STORE_HEARTBEAT_H_

#include <map>
#include <string>

#include "base/env.h"
#include "store/partial.h"

namespace deepfreeze {

// The writer's side, for one rank and step. Thread-compatible.
class Heartbeat {
 public:
  Heartbeat(const std::string& run_dir, const Identity& identity);
  // Shows the next number. Errors are ignored: the next beat shows a greater number. Does not make the partial
  // directory.
  void Beat(Env* env);

 private:
  std::string Path(uint64_t number) const;

  const std::string directory_;
  const uint32_t rank_;
  uint64_t number_ = 0;
};

// The reader's side, for one step. Thread-compatible.
class Pulse {
 public:
  // Whether something has moved between the last call's state and this one's: a record is there that was not, or a rank
  // without a record has shown another heartbeat. False for the first call, which has nothing to compare with.
  bool Moved(const PartialState& state);

 private:
  bool looked_ = false;
  size_t records_ = 0;
  std::map<uint32_t, uint64_t>
      beats_;  // the greatest number seen of each rank; a listing may miss a file being renamed
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_HEARTBEAT_H_
