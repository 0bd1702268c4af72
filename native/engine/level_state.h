// Where a checkpoint stands at each level, and how it gets on: the one table of states and changes. JobTable makes
// every change by it; level_state_test walks it, with several checkpoints in a stage at once.
//
// What holds in every order of changes:
// - The newest committed step never decreases. Steps may be committed in any order, and a step that is committed after
//   a newer one changes nothing for that one.
// - From the first commit on there is a committed checkpoint that nobody writes to: a checkpoint is written under
//   another name than a committed one, gets its name by one rename, and is never written to again. Only retention
//   removes it, and never the newest one.
// - Each buffer, each part of one, and each slot has one owner, and is freed once (slot_pool.h, buffer_parts.h).
// - No checkpoint is captured while as many are neither committed nor over otherwise as Options::uncommitted, or
//   JobTable::Tune, says.
// - A commit has the records of all ranks of one attempt, all of that step (store/commit.cc).
// - No checkpoint is given up for a newer one before the newer one is committed, except for one that every rank has
//   held for it (JobTable::Replace).
#ifndef DEEPFREEZE_ENGINE_LEVEL_STATE_H_
#define DEEPFREEZE_ENGINE_LEVEL_STATE_H_

#include <cstddef>
#include <cstdint>

namespace deepfreeze {

enum class LevelState : uint8_t {
  kNone,     // waits for a thread of the level, or for a level that comes before
  kRunning,  // a thread of the level works on it
  kDone,     // the level has it
  kFailed,   // the level will never have it; nor will the external level have one that was given up for a newer one
  kLeft,     // the level had it, and has given its place to another checkpoint
};

enum class Change : uint8_t {
  kBegin,   // a thread takes the checkpoint
  kPass,    // the thread has done its stage, and the level's next stage follows
  kFinish,  // the thread has done the last stage
  kFail,    // the thread can't go on; or the step has failed before the level began
  kLeave,   // the level's place is given to another checkpoint
};

struct Transition {
  LevelState from;
  Change change;
  LevelState to;
};

inline constexpr Transition kTransitions[] = {
    {LevelState::kNone, Change::kBegin, LevelState::kRunning},
    {LevelState::kNone, Change::kFail, LevelState::kFailed},
    {LevelState::kRunning, Change::kPass, LevelState::kNone},
    {LevelState::kRunning, Change::kFinish, LevelState::kDone},
    {LevelState::kRunning, Change::kFail, LevelState::kFailed},
    {LevelState::kDone, Change::kLeave, LevelState::kLeft},
};

// RETURNS whether the table has such a change; if so, *state is the new state.
constexpr bool Apply(Change change, LevelState* state) {
  for (const Transition& row : kTransitions) {
    if (row.from != *state || row.change != change) continue;
    *state = row.to;
    return true;
  }
  return false;
}

// Whether the level's work is over, with or without success: no thread of it touches the checkpoint any more.
constexpr bool Settled(LevelState state) { return state != LevelState::kNone && state != LevelState::kRunning; }

// Whether the level has the checkpoint, or had it.
constexpr bool Reached(LevelState state) { return state == LevelState::kDone || state == LevelState::kLeft; }

// Where the bytes of a capture lie.
enum class Home : uint8_t {
  kCaller,  // in memory of the caller's
  kBuffer,  // in a buffer of the engine's
  kSlot,    // in a slot of the local tier, which is memory
};
inline constexpr size_t kHomes = 3;

// The number of a level: its place in the list of levels. kCaptured is the memory of the training process; it has no
// threads, because the caller captures.
using LevelId = size_t;
inline constexpr LevelId kCaptured = 0;
inline constexpr LevelId kLocal = 1;
inline constexpr LevelId kExternal = 2;

using LevelSet = uint32_t;
constexpr LevelSet Only(LevelId level) { return LevelSet{1} << level; }

// One after the other, a checkpoint goes through the stages of a level. Checkpoints in one stage need not wait for each
// other: of those that may begin the oldest begins first, and any may end first.
struct StageRow {
  const char* thread = nullptr;  // the name of its threads, at most 15 bytes; null: there is no such stage
  size_t threads = 0;            // how many there are: at most so many checkpoints are in this stage at a time
};
inline constexpr size_t kMostStages = 3;

// A level, as the job table knows it.
struct LevelRow {
  const char* whereto;  // for people: a checkpoint "is being written to ..."
  StageRow stages[kMostStages];
  bool keeps_memory;  // whether a checkpoint's memory must stay until the level has settled
  // Which levels must have settled before this one may begin, by Home. Levels that wait for none start together.
  LevelSet after[kHomes];

  constexpr bool IsLast(size_t stage) const { return stage + 1 == kMostStages || stages[stage + 1].threads == 0; }
};

// The stages of kExternal.
inline constexpr size_t kTransfer = 0;  // to the external store
inline constexpr size_t kPublish = 1;   // makes that durable, and says so
inline constexpr size_t kCommit = 2;

// A checkpoint goes to the local tier and to the external store at the same time: it is committed after the longer of
// both, not after their sum. Once the local tier has it, its memory may be wanted for the next capture; the store then
// gets the rest from the slot.
inline constexpr LevelRow kLevelRows[] = {
    {"to memory", {}, false, {0, 0, 0}},
    {"to the local tier", {{"df-local", 1}}, true, {0, 0, 0}},
    {"to the external store",
     {{"df-transfer", 1}, {"df-publish", 1}, {"df-commit", 1}},  // of each, as many as Options::transfers
     false,
     {0, 0, 0}},
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_ENGINE_LEVEL_STATE_H_
