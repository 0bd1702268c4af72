// Where the ranks of one attempt meet. Each tells whether its part of a step is durable, or why it can't be, and learns
// what has become of the step. The ranks send each other no messages.
//
// Whether a step is committed is decided once, by rank 0 alone: it commits the step as soon as all parts are there, or
// says that the step has failed. Every other rank finds out by looking.
#ifndef DEEPFREEZE_STORE_MEETING_H_
#define DEEPFREEZE_STORE_MEETING_H_

#include <string>

#include "format/names.h"
#include "format/record.h"
#include "store/roll.h"

namespace deepfreeze {

enum class Verdict {
  kPending,
  kCommitted,
  kFailed,
  kSuperseded,  // rank 0 has given the step up, because a newer checkpoint is committed
};

// What a rank's try to seal a step has come to, whether it has returned an error or not.
enum class Seal {
  kUnseen,     // no other rank knows of it: the part does not count
  kSeen,       // other ranks may know of it: rank 0 may commit the step, and only a look tells whether it has
  kByAnother,  // as kSeen, and another rank of the node does the work; of SealedTogether alone
};

// One rank's side. All methods block on the store, and may be called by several threads at once, for different steps.
class Meeting {
 public:
  virtual ~Meeting() = default;

  // This rank's bytes of the record's step are durable: from now on its part counts. May be repeated after a failure.
  // REQUIRES: ShardWriter::Seal has returned ok. RETURNS ok if the record is durable, or another rank of the node has
  // it to write; *seal is set after an error too.
  virtual Status Sealed(const Record& record, Seal* seal) = 0;

  // Whether the ranks of a node can seal a step together. If so, one of them has all their records and makes the next
  // call instead of Sealed, and the others the one after it.
  virtual bool SealsTogether() const { return false; }
  // As Sealed, for all these ranks. own: this rank's record; records: those of `ranks`, encoded, one behind the other
  // in the ranks' order. Of several ranks that make this call for a step, one does the work. REQUIRES: SealsTogether();
  // for a step it is not called again after kByAnother.
  virtual Status SealedTogether(const Record& own, const NodeRanks& ranks, const std::string& records, Seal* seal);
  // Another rank of the node has this rank's record of the step, and seals it.
  virtual void SealedByAnother(int64_t /*step*/) {}

  // On rank 0: the step has failed, on all ranks. On another rank: this rank can't finish the step, so rank 0 will fail
  // it. REQUIRES: on rank 0, the step is not committed and not in doubt; on another rank, no rank can know of its part.
  // RETURNS an error if the others can't be told. The message may be lost in a crash.
  virtual Status Failed(int64_t step, const std::string& why) = 0;

  // Rank 0 gives the step up, because the newer one of step `by` is committed. REQUIRES: this is rank 0; the step is
  // neither committed nor in doubt. RETURNS as Failed.
  virtual Status Superseded(int64_t step, int64_t by) = 0;

  // This rank's bytes of a step move, though they take long: the others need not give the step up. beat: 1 and so on,
  // at each call for a step. Errors are ignored: the next beat says more.
  virtual void Beat(int64_t step, uint64_t beat) = 0;

  // What rank 0 has decided; *why, of a failed step, for people; of one that is superseded, what SupersededText says.
  // Takes the same few calls however many ranks and steps there are. REQUIRES: this is not rank 0. RETURNS an error if
  // the store can't be looked at: that says nothing of the step, and *verdict is kPending.
  virtual Status Look(int64_t step, Verdict* verdict, std::string* why) = 0;

  // This rank knows that the step is over, and will not look at it again. committed: whether it was committed.
  virtual void Ended(int64_t step, bool committed) = 0;

  // Who has come. *failure: why a rank has given the step up, "" if none has; then the step can't be committed any
  // more. Reads as many names as there are ranks: rank 0 calls it to decide, others seldom. RETURNS an error if the
  // names can't be read; a step of which there is nothing is ok, with roll->exists false.
  virtual Status Roll(int64_t step, PartialState* roll, std::string* failure) = 0;
};

// By which rank 0 tells that a step is given up for a newer one, and how a rank reads it. False: the text tells of
// something else.
std::string SupersededText(int64_t by);
bool ParseSuperseded(const std::string& text, int64_t* by);

inline Status Meeting::SealedTogether(const Record& own, const NodeRanks& /*ranks*/, const std::string& /*records*/,
                                      Seal* seal) {
  return Sealed(own, seal);
}

}  // namespace deepfreeze

#endif  // DEEPFREEZE_STORE_MEETING_H_
