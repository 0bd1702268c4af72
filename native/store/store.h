// The engine's half of the external store: the location of one run, as one rank's engine asks it. Python's half is
// deepfreeze/store/store.py; docs/design.md ("Seams") has both halves in one table.
//
// A checkpoint comes about like this. Each rank writes its shard (OpenShard), makes it durable (Seal) and tells so in
// the ranks' meeting (Meet). When all have told, rank 0 commits (Commit). From then on readers see the whole
// checkpoint, until Remove takes the whole of it. The store need not have directories or a rename.
#ifndef DEEPFREEZE_STORE_STORE_H_
#define DEEPFREEZE_STORE_STORE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "format/manifest.h"
#include "store/comparison.h"
#include "store/meeting.h"
#include "store/shard_writer.h"

namespace deepfreeze {

struct CommitRequest {
  int64_t step = 0;
  Id attempt{};
  // The identity that all records must have, but for the rank; null: they must agree with each other.
  const Identity* expected = nullptr;
  // Whether to read the whole model file again and compare it with the records' checksums.
  bool verify = false;
  // The result of the last comparison before, or null. It holds for this step too unless this step's comparison says
  // more: see Holds.
  const Divergence* known = nullptr;
  // Whether the commit fails if the ranks differ (kDiverged). Otherwise the manifest says how many tensors differ.
  bool refuse_diverged = false;
  // Whether the attempt is the caller's own. Then it must still have the run right before the commit (else kTaken).
  bool own = false;
  // Whether to refuse records that have only a part of a page, because another rank might have written the rest. Older
  // versions wrote such records, so a caller that finishes another attempt's checkpoint leaves this false.
  bool whole_pages = false;
  // Whether another attempt's checkpoint of the same step is removed. Otherwise it stays and the commit fails
  // (kInvalid).
  bool replace = false;
};

struct CommitOutcome {
  Divergence divergence;
  bool compared = false;  // whether the ranks took checksums at this step, of whole tensors or of a part
  // Whether this call has committed the step, and so gathered the ranks' records. False if it was committed before.
  bool gathered = false;
  // After an error: true if the step may be committed all the same, because the store could not be looked at after a
  // failed call. The caller must not report such a step as failed, and asks Settle.
  bool in_doubt = false;
  // After success: ok, or the error of the last sync, which makes the checkpoint's name durable. After such an error a
  // loss of power may take the checkpoint, so older ones must stay until a later commit's sync succeeds.
  Status unsynced;
};

// What has become of a step of which this attempt has sealed a part.
enum class Fate {
  kUnknown,      // the store could not be looked at
  kCommitted,    // it is a checkpoint of this attempt
  kUncommitted,  // it is none, and its shards are there
  kGone,         // it is none, and its shards are not there either
};

// What a store has of one rank's part of a step.
enum class Part {
  kMissing,    // no whole record, or another rank's or checkpoint's
  kSealed,     // its bytes are durable, and its record is whole
  kCommitted,  // the step is a checkpoint of the rank's attempt
};

struct CleanUpRequest {
  int64_t step = 0;
  Id attempt{};
  uint32_t world = 1;               // number of ranks
  uint32_t backlog = 1;             // how many steps a rank may have unfinished
  std::vector<int64_t> unfinished;  // steps that are on their way: what there is of them stays
};

struct MadeRoom {
  bool removed = false;  // there was something to remove
  bool awaits = false;   // something is left until the other ranks have learned that its step is over
};

// All methods block on the store. They may be called by several threads at once; calls that change one step, or remove
// anything, one at a time. Errors are kIo, or kNoSpace for a full store; transient() ones may pass.
class Store {
 public:
  explicit Store(std::string place) : place_(std::move(place)) {}
  virtual ~Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // The place as people name it, for messages.
  const std::string& place() const { return place_; }

  // --- of each rank

  // The writer of this rank's shard of identity.step. Makes nothing on the store yet. REQUIRES: the store outlives it.
  virtual std::unique_ptr<ShardWriter> OpenShard(const Identity& identity) = 0;
  // Where this rank meets the others of its attempt; identity.step does not matter. REQUIRES: the store outlives it.
  // The store makes it because Commit gathers the records that the ranks have put down there.
  virtual std::unique_ptr<Meeting> Meet(const Identity& identity) = 0;

  // --- of rank 0

  // The one atomic act after which a checkpoint exists. May be repeated, also after a crash at any point of it. RETURNS
  // ok if the step is committed by this attempt, now or before; kIncomplete if a rank's record is missing; kCorrupt if
  // a record is damaged, or the records do not fit together, or the bytes do not fit them; kDiverged, kTaken, kInvalid
  // as the request's fields say.
  virtual Status Commit(const CommitRequest& request, CommitOutcome* outcome) = 0;
  // What has become of a step whose commit may have happened; if it is committed, its name is made durable. RETURNS an
  // error with kCommitted if that sync has failed, and one with kGone if another attempt has the run (kTaken), or if
  // that can't be told. With any other error *fate is kUnknown.
  virtual Status Settle(int64_t step, const Id& attempt, Fate* fate) = 0;

  // Removes the committed checkpoint of `step`, whichever attempt has written it: readers see the whole of it or
  // nothing. Whoever has it open can read on. A step without a committed checkpoint is passed over. `attempt`: the
  // caller's own. RETURNS kTaken, and removes nothing, if another attempt has the run, as CleanUp and MakeRoom do.
  virtual Status Remove(int64_t step, const Id& attempt) = 0;
  // Removes what a commit needs no more: the records that the ranks have put down for it. REQUIRES: the commit is
  // durable, and has gathered them. Errors are ignored: no reader of a committed checkpoint looks at these.
  virtual void Tidy(int64_t step) = 0;
  // Removes what this attempt's earlier steps have left that are not on their way any more, once every rank has learned
  // of it; and what earlier removals have left. Committed checkpoints are not touched. REQUIRES: request.step is
  // committed. RETURNS the first error; what can't be removed does not stop the rest.
  virtual Status CleanUp(const CleanUpRequest& request) = 0;
  // To be called when the store is full and request.step can't be written, or a step is given up: removes what earlier
  // steps of this attempt have left of which all ranks know that they are over, and what earlier removals have left.
  virtual Status MakeRoom(const CleanUpRequest& request, MadeRoom* made) = 0;

  // --- of the next start of a job, when no engine of the dead attempt runs any more

  // What there is of this rank's part of identity.step: unless it is kMissing, nothing of it need be written. RETURNS
  // kInvalid if something else is in the place of the shards.
  virtual Status FindPart(const Identity& identity, Part* part) = 0;
  // Commits a dead attempt's checkpoint. Its bytes are read and compared with their checksums. RETURNS kDiverged if the
  // ranks differ, or did when the attempt last compared them before, so it may have refused the checkpoint. Other
  // errors as of Commit. An error may also be that of the last sync: the next call then finds the step committed.
  virtual Status Finish(int64_t step, const Id& attempt) = 0;
  // *manifest: of the newest committed checkpoint, if there is one (*found). A damaged one is none.
  virtual Status Newest(Manifest* manifest, bool* found) = 0;

 private:
  const std::string place_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_STORE_H_
