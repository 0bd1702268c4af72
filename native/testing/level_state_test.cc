// The states of checkpoints and slots, walked: from every state that three checkpoints can get into, every thing that a
// thread of the engine or its caller can do next, in every order. The walk drives the product's job table.
#include "engine/level_state.h"

#include <cstdio>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "engine/job_table.h"
#include "testing/check.h"

namespace deepfreeze {
namespace {

constexpr int64_t kSteps = 3;
constexpr uint32_t kInFlight = 2;

// How the three checkpoints are captured, and how many slots there are.
struct Shape {  // NOLINT(clang-analyzer-optin.performance.Padding): its rows read in this order
  uint32_t slots;
  Home homes[kSteps];
  int64_t lost;  // the step that has no capture; -1: none
  bool polls;    // whether the caller asks for reports all the time, so that the table forgets what is over
};

// An engine's table, and the threads that work on it: each either waits for a job or has one.
class Walker {
 public:
  explicit Walker(const Shape& shape)
      : shape_(shape), table_(Env::Posix(), TableOptions{kInFlight, shape.slots, shape.slots > 0}) {}

  // Does one thing. RETURNS false, and does nothing, if it can't be done now.
  bool Do(size_t action) {
    const bool done = (this->*kActions[action])();
    if (done && shape_.polls) (void)table_.Poll(2 * kSteps);
    return done;
  }
  static size_t actions() { return std::size(kActions); }

  // All that the next actions depend on.
  std::string State() const {
    std::string state = std::to_string(submitted_) + (reserved_ ? "r" : "-");
    for (const JobRef& job : jobs_) {
      state += '|';
      for (const Standing& at : job->at) state += static_cast<char>('a' + 5 * at.stage + static_cast<int>(at.state));
      state += std::to_string(job->readers) + "s" + std::to_string(job->slot);
    }
    for (const JobRef& job : working_) state += job == nullptr ? "." : std::to_string(job->step);
    state += reads_ ? "c" : "-";
    for (const uint32_t slot : table_.IdleSlots()) state += "i" + std::to_string(slot);
    return state + std::to_string(table_.Room(Home::kSlot)) + std::to_string(table_.Room(Home::kBuffer));
  }

  // What holds in every state.
  void Check() const {
    uint32_t held = 0;
    bool earlier_over = true;
    std::set<int> only_copies;
    const std::vector<uint32_t> slots = table_.IdleSlots();
    const std::set<uint32_t> idle(slots.begin(), slots.end());
    for (const JobRef& job : jobs_) {
      held += job->in_flight() ? 1 : 0;
      // Steps are committed in their order.
      if (job->at[kExternal].state == LevelState::kDone) CHECK(earlier_over);
      earlier_over = earlier_over && job->over();
      // What is not over can be read from somewhere: its memory, or its slot.
      const bool sent = job->at[kExternal].stage > kTransfer;
      if (!job->over() && !sent && job->lost.ok()) CHECK(!job->released() || job->on_slot());
      // What the local level says that it has is in a slot; the table says nothing of jobs that it has forgotten.
      if (job->on_slot() && !shape_.polls) CHECK(idle.count(static_cast<uint32_t>(job->slot)) == 0);
      // No two steps have one slot, and a slot that is read, or written to, is not given away.
      const bool used = !job->over() || job->at[kLocal].state == LevelState::kRunning;
      const bool owns = job->slot != SlotPool::kNoSlot && used;
      if (owns && (job->home == Home::kSlot || job->on_slot())) CHECK(only_copies.insert(job->slot).second);
    }
    CHECK(held <= kInFlight);
    for (const uint32_t slot : slots) CHECK(only_copies.count(static_cast<int>(slot)) == 0);
  }

  bool Ended() const {
    for (const JobRef& job : jobs_) {
      if (!job->over() || !job->released() || job->busy()) return false;
    }
    return submitted_ == kSteps;
  }

  // At the end nothing is held: all slots can be had, but those of whole steps that failed, which a capture may take.
  void CheckEnd() {
    CHECK_EQ(table_.Room(Home::kSlot), shape_.slots);
    CHECK_EQ(table_.Room(Home::kBuffer), kInFlight);
    CHECK_OK(table_.Drain(Deadline(0)));
    const std::vector<Report> reports = table_.Poll(2 * kSteps);
    CHECK(shape_.polls || reports.size() == static_cast<size_t>(kSteps));
    for (const Report& report : reports) CHECK(report.released && (report.level == 3 || report.code != Code::kOk));
    CHECK(table_.Poll(1).empty());  // each was reported for the last time
    // Slots that are kept for the next start are of steps newer than the newest commit.
    size_t wanted = 0;
    for (const JobRef& job : jobs_) wanted = job->failed() ? wanted + 1 : 0;
    table_.Stop();
    CHECK(shape_.slots - table_.IdleSlots().size() <= wanted);
  }

 private:
  using Action = bool (Walker::*)();

  bool Submit() {
    if (submitted_ == kSteps) return false;
    auto job = std::make_shared<Job>();
    job->step = submitted_;
    const Home home = shape_.homes[submitted_];
    if (submitted_ == shape_.lost) {
      job->lost = Status(Code::kIncomplete, "no capture");
    } else if (home != Home::kCaller && !reserved_) {
      int number = SlotPool::kNoSlot;
      reserved_ = table_.Reserve(home, 0, &number).ok();
      return reserved_;
    }
    if (!table_.Submit(job, reserved_, 0).ok()) return false;
    reserved_ = false;
    jobs_.push_back(job);
    ++submitted_;
    return true;
  }
  template <LevelId level, size_t stage>
  bool Begin() {
    JobRef& mine = Worker<level, stage>();
    return mine == nullptr && (mine = table_.TryNext(level, stage)) != nullptr;
  }
  template <LevelId level, size_t stage, bool fails>
  bool End() {
    JobRef& mine = Worker<level, stage>();
    if (mine == nullptr) return false;
    if (level == kLocal) {
      int slot = SlotPool::kNoSlot;
      if (!table_.TryAcquireSlot(mine, &slot)) return false;
      if (slot == SlotPool::kNoSlot && !fails) return false;
    }
    if (level == kExternal && stage == kTransfer) {
      // It waits for its chunks, and for the checksums of a step that was captured in a slot. Without a capture it
      // fails.
      if (reads_ || (!fails && !(Settled(mine->at[kLocal].state) && mine->lost.ok()))) return false;
    }
    if (fails) {
      table_.Fail(mine, level, Status(Code::kIo, "it failed"));
    } else {
      if (level == kExternal && stage == kCommit) table_.ReleaseSlots(mine->step);
      table_.Finish(mine, level);
    }
    mine = nullptr;
    return true;
  }
  bool BeginChunk() {
    const JobRef& job = working_[kTransfer];
    if (job == nullptr || reads_) return false;
    reads_ = table_.BeginRead(job, 0, 0);
    return reads_;
  }
  bool EndChunk() {
    if (!reads_) return false;
    table_.EndRead(working_[kTransfer]);
    reads_ = false;
    return true;
  }
  template <LevelId level, size_t stage>
  JobRef& Worker() {
    return working_[level == kLocal ? kMostStages : stage];
  }

  static constexpr Action kActions[] = {
      &Walker::Submit,
      &Walker::Begin<kLocal, 0>,
      &Walker::End<kLocal, 0, false>,
      &Walker::End<kLocal, 0, true>,
      &Walker::Begin<kExternal, kTransfer>,
      &Walker::End<kExternal, kTransfer, false>,
      &Walker::End<kExternal, kTransfer, true>,
      &Walker::Begin<kExternal, kPublish>,
      &Walker::End<kExternal, kPublish, false>,
      &Walker::End<kExternal, kPublish, true>,
      &Walker::Begin<kExternal, kCommit>,
      &Walker::End<kExternal, kCommit, false>,
      &Walker::End<kExternal, kCommit, true>,
      &Walker::BeginChunk,
      &Walker::EndChunk,
  };

  const Shape shape_;
  JobTable table_;
  std::vector<JobRef> jobs_;
  JobRef working_[kMostStages + 1];
  int64_t submitted_ = 0;
  bool reserved_ = false;
  bool reads_ = false;  // the transfer reads a chunk from memory
};

// RETURNS how many states there are.
size_t Walk(const Shape& shape) {
  std::set<std::string> seen;
  size_t ends = 0;
  // Depth first; a table can't be copied, so each state is reached anew, from the beginning.
  const std::function<void(std::vector<size_t>*)> visit = [&](std::vector<size_t>* path) {
    bool any = false;
    for (size_t action = 0; action < Walker::actions(); ++action) {
      Walker walker(shape);
      for (const size_t done : *path) CHECK(walker.Do(done));
      if (!walker.Do(action)) continue;
      any = true;
      walker.Check();
      if (!seen.insert(walker.State()).second) continue;
      path->push_back(action);
      visit(path);
      path->pop_back();
    }
    if (any) return;
    Walker walker(shape);  // nothing can be done any more: all must be over, or some would wait for ever
    for (const size_t done : *path) CHECK(walker.Do(done));
    CHECK(walker.Ended());
    walker.CheckEnd();
    ++ends;
  };
  std::vector<size_t> path;
  visit(&path);
  CHECK(ends > 0);
  return seen.size();
}

// Of the table itself: where it ends, and that nothing leads two ways.
constexpr LevelState kStates[] = {LevelState::kNone, LevelState::kRunning, LevelState::kDone, LevelState::kFailed,
                                  LevelState::kSuperseded};
constexpr Change kChanges[] = {Change::kBegin, Change::kPass, Change::kFinish, Change::kFail, Change::kSupersede};

void TheTableIsAFunctionThatEnds() {
  size_t changes = 0;
  for (const LevelState from : kStates) {
    for (const Change change : kChanges) {
      LevelState to = from;
      if (!Apply(change, &to)) continue;
      ++changes;
      CHECK(to != from);
      // What has settled is never worked on again, and what failed or is superseded never changes.
      CHECK(!Settled(from) || (from == LevelState::kDone && to == LevelState::kSuperseded));
    }
  }
  CHECK_EQ(changes, std::size(kTransitions));  // no row is there twice
}

void ThreeCheckpointsInEveryOrder() {
  const Home kC = Home::kCaller;
  const Home kB = Home::kBuffer;
  const Home kS = Home::kSlot;
  const Shape shapes[] = {
      {2, {kC, kC, kC}, -1, false}, {1, {kC, kC, kC}, -1, false}, {2, {kC, kS, kS}, -1, false},
      {2, {kS, kS, kS}, -1, false}, {1, {kS, kS, kS}, -1, false}, {2, {kB, kB, kB}, -1, false},
      {0, {kC, kB, kB}, -1, false}, {2, {kS, kS, kS}, 1, false},  {1, {kC, kC, kC}, 0, false},
      {2, {kS, kS, kS}, -1, true},  {2, {kC, kC, kC}, -1, true},
  };
  for (const Shape& shape : shapes) {
    const size_t states = Walk(shape);
    std::printf("%u slots: %zu states\n", shape.slots, states);
    CHECK(states > 100);
  }
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::TheTableIsAFunctionThatEnds();
  deepfreeze::ThreeCheckpointsInEveryOrder();
}
