// RUN/owner: the file that names the attempt which has the run. A job's start writes it, under the run's lock, before
// it changes anything in the run.
//
// A job can lose its lock: somebody deletes the lock's file, or the store forgets the lock. Then another job may start
// in the run, and the first job learns it from this file. It can't look at the lock itself: a process that closes any
// descriptor of the lock's file gives its lock away.
#ifndef DEEPFREEZE_STORE_OWNER_H_
#define DEEPFREEZE_STORE_OWNER_H_

#include <string>

#include "base/coding.h"
#include "base/env.h"

namespace deepfreeze {

// Called before each commit and each removal. RETURNS ok if RUN/owner names this attempt, or does not exist (older
// versions did not write it); kTaken if it names another attempt; kCorrupt if it names none; another error if it can't
// be read. After any error the caller must neither commit nor remove: a step that fails can be saved again, a
// checkpoint that is removed can't be brought back.
Status CheckOwner(Env* env, const std::string& run_dir, const Id& attempt);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_OWNER_H_
