// A run as a directory of a file system. What each method does there is in partial, dir_meeting, commit, records,
// retention and owner.
#ifndef DEEPFREEZE_STORE_POSIX_STORE_H_
#define DEEPFREEZE_STORE_POSIX_STORE_H_

#include <memory>
#include <string>
#include <utility>

#include "base/env.h"
#include "base/mutex.h"
#include "store/store.h"

namespace deepfreeze {

class PosixStore final : public Store {
 public:
  // cached: shards are written through the page cache, also where direct writes are possible. REQUIRES: env outlives
  // this; run_dir is an existing directory.
  PosixStore(Env* env, std::string run_dir, bool cached = false)
      : Store(std::move(run_dir)), env_(env), cached_(cached) {}

  std::unique_ptr<ShardWriter> OpenShard(const Identity& identity) override;
  std::unique_ptr<Meeting> Meet(const Identity& identity) override;
  Status Commit(const CommitRequest& request, CommitOutcome* outcome) override;
  Status Settle(int64_t step, const Id& attempt, Fate* fate) override;
  Status Remove(int64_t step, const Id& attempt) override;
  void Tidy(int64_t step) override;
  Status CleanUp(const CleanUpRequest& request) override;
  Status MakeRoom(const CleanUpRequest& request, MadeRoom* made) override;
  Status FindPart(const Identity& identity, Part* part) override;
  Status Finish(int64_t step, const Id& attempt) override;
  Status Newest(Manifest* manifest, bool* found) override;

 private:
  Env* const env_;
  const bool cached_;
  Mutex last_;  // of commits: see CommitPartial
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_POSIX_STORE_H_
