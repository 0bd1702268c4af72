// The states of checkpoints and slots, walked: from every state that three checkpoints can get into, every thing that a
// thread of the engine or its caller can do next, in every order. The walk drives the product's job table.
#include "engine/level_state.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/job_table.h"
#include "testing/check.h"

namespace deepfreeze {
namespace {

constexpr int64_t kSteps = 3;
constexpr uint32_t kInFlight = 2;
constexpr uint32_t kUncommitted = 3;  // with several transfers

// How the three checkpoints are captured, and how many slots there are.
struct Shape {  // NOLINT(clang-analyzer-optin.performance.Padding): its rows read in this order
  uint32_t slots;
  Home homes[kSteps];
  int64_t lost;             // the step that has no capture; -1: none
  bool polls;               // whether the caller asks for reports all the time, so that the table forgets what is over
  size_t transfers = 1;     // how many checkpoints may be in each stage of the external level
  size_t writers = 1;       // threads that write each of them at once
  int failures = 99;        // how many things may fail
  bool supersedes = false;  // whether checkpoints are given up for newer ones
  size_t tuned_first = 0;   // transfers and uncommitted checkpoints at first; 0: as many as there may be
  size_t tuned = 0;         // and from any moment on; 0: as at first
};
constexpr size_t kMostTransfers = 3;

std::vector<LevelRow> Rows(size_t transfers) {
  std::vector<LevelRow> rows(std::begin(kLevelRows), std::end(kLevelRows));
  for (StageRow& stage : rows[kExternal].stages) stage.threads = transfers;
  return rows;
}

TableOptions OptionsOf(const Shape& shape) {
  TableOptions options{kInFlight, shape.slots, shape.slots > 0};
  options.levels = Rows(shape.transfers);
  if (shape.transfers > 1) options.in_flight = kSteps;
  if (shape.transfers > 1) options.uncommitted = kUncommitted;
  return options;
}

// An engine's table, and the threads that work on it: each either waits for a job or has one.
class Walker {
 public:
  explicit Walker(const Shape& shape) : shape_(shape), table_(Env::Posix(), OptionsOf(shape)) {
    if (shape.tuned_first > 0) SetTo(shape.tuned_first);
  }

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
    for (int64_t step = 0; step < kSteps; ++step) state += "c" + std::to_string(reads_[step]);
    if (shape_.supersedes) {
      for (const JobRef& job : jobs_) state += std::to_string(job->superseded_by);
      state += "h" + std::to_string(held_);
    }
    state += "f" + std::to_string(failures_ < shape_.failures);
    if (shape_.tuned > 0) state += "t" + std::to_string(transfers_);
    for (const bool ordered : in_order_) state += ordered ? 'o' : '-';
    for (const uint32_t slot : table_.IdleSlots()) state += "i" + std::to_string(slot);
    return state + std::to_string(table_.Room(Home::kSlot)) + std::to_string(table_.Room(Home::kBuffer));
  }

  // What holds in every state.
  void Check() const {
    uint32_t held = 0;
    uint32_t uncommitted = 0;
    bool earlier_over = true;
    std::set<int> only_copies;
    const std::vector<uint32_t> slots = table_.IdleSlots();
    const std::set<uint32_t> idle(slots.begin(), slots.end());
    for (const JobRef& job : jobs_) {
      held += job->in_flight() ? 1 : 0;
      uncommitted += job->over() ? 0 : 1;
      // With one transfer steps are committed in their order.
      const bool ordered = shape_.transfers == 1;
      if (job->at[kExternal].state == LevelState::kDone && ordered) CHECK(earlier_over);
      if (job->step == newest_) CHECK(job->at[kExternal].state == LevelState::kDone);
      earlier_over = earlier_over && job->over();
      // None is given up for a newer one before that is committed, but for one that was held for it.
      if (job->superseded() && job->superseded_by < kSteps) CHECK(job->superseded_by <= newest_);
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
    CHECK(held <= OptionsOf(shape_).in_flight);
    CHECK(uncommitted <=
          std::min(OptionsOf(shape_).in_flight + shape_.slots, kUncommitted + (shape_.transfers > 1 ? 0 : 9)));
    if (newest_ > 0) CHECK(table_.NewerCommitted(newest_ - 1));
    CHECK(!table_.NewerCommitted(std::max<int64_t>(newest_, 0)));
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
    if (uncommitted_ == SIZE_MAX) CHECK_EQ(table_.Room(Home::kSlot), shape_.slots);
    CHECK_EQ(table_.Room(Home::kBuffer), std::min<size_t>(OptionsOf(shape_).in_flight, uncommitted_));
    CHECK_OK(table_.Drain(Deadline(0)));
    const std::vector<Report> reports = table_.Poll(2 * kSteps);
    CHECK(shape_.polls || reports.size() == static_cast<size_t>(kSteps));
    for (const Report& report : reports) {
      CHECK(report.released && (report.level == 3 || report.code != Code::kOk));
      CHECK(report.code != Code::kSuperseded || report.superseded_by > report.step);
    }
    CHECK(table_.Poll(1).empty());  // each was reported for the last time
    // Slots that are kept for the next start are of steps newer than the newest commit.
    size_t wanted = 0;
    for (const JobRef& job : jobs_) wanted += job->failed() && !job->superseded() && job->step > newest_ ? 1 : 0;
    table_.Stop();
    CHECK(shape_.slots - table_.IdleSlots().size() <= wanted);
  }

 private:
  using Action = bool (Walker::*)();

  void SetTo(size_t number) {
    if (number > transfers_) in_order_[0] = in_order_[1] = in_order_[2] = false;
    transfers_ = uncommitted_ = number;
    table_.Tune(transfers_, uncommitted_);
  }
  bool Tune() {
    if (shape_.tuned == 0 || transfers_ == shape_.tuned) return false;
    SetTo(shape_.tuned);
    return true;
  }
  size_t Uncommitted() const {
    return std::count_if(jobs_.begin(), jobs_.end(), [](const JobRef& job) { return !job->over(); });
  }
  // A checkpoint that begins a stage finds a place there, and with one transfer in the order of the steps.
  void CheckBegun(const JobRef& begun, size_t stage) {
    size_t running = 0;
    bool oldest = true;
    for (const JobRef& job : jobs_) {
      const Standing& at = job->at[kExternal];
      running += at.state == LevelState::kRunning && at.stage == stage ? 1 : 0;
      oldest = oldest && (job->step >= begun->step || job->over());
    }
    CHECK(running <= transfers_ || (oldest && stage == kCommit));
    if (stage == kTransfer) in_order_[begun->step] = transfers_ == 1;
    if (stage == kCommit && in_order_[begun->step]) CHECK(oldest);
  }

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
      if (reserved_) CHECK(Uncommitted() < uncommitted_);
      return reserved_;
    }
    if (!table_.Submit(job, reserved_, 0).ok()) return false;
    if (!reserved_ && job->lost.ok()) CHECK(Uncommitted() < uncommitted_);
    reserved_ = false;
    jobs_.push_back(job);
    ++submitted_;
    return true;
  }
  // Any of the stage's threads that has nothing to do.
  template <LevelId level, size_t stage>
  bool Begin() {
    for (size_t n = 0; n < (level == kExternal ? shape_.transfers : 1); ++n) {
      JobRef& mine = Worker<level, stage>(n);
      if (mine != nullptr) continue;
      mine = table_.TryNext(level, stage);
      if (mine != nullptr && level == kExternal) CheckBegun(mine, stage);
      return mine != nullptr;
    }
    return false;
  }
  // The thread that has the step.
  template <LevelId level, size_t stage, int64_t step>
  JobRef* Mine() {
    for (size_t n = 0; n < kMostTransfers; ++n) {
      JobRef& mine = Worker<level, stage>(n);
      if (mine != nullptr && mine->step == step) return &mine;
    }
    return nullptr;
  }
  template <LevelId level, size_t stage, bool fails, int64_t step>
  bool End() {
    JobRef* const found = Mine<level, stage, step>();
    if (found == nullptr) return false;
    JobRef& mine = *found;
    // Its threads see that it is given up.
    const bool given_up = level == kExternal && mine->superseded_by >= 0;
    if (fails && !given_up && mine->lost.ok() && failures_ >= shape_.failures) return false;
    if (given_up && !fails) return false;
    if (level == kLocal) {
      int slot = SlotPool::kNoSlot;
      if (!table_.TryAcquireSlot(mine, &slot)) return false;
      if (slot == SlotPool::kNoSlot && !fails) return false;
    }
    if (level == kExternal && stage == kTransfer) {
      // It waits for its chunks, and for the checksums of a step that was captured in a slot. Without a capture it
      // fails.
      if (reads_[step] > 0 || (!fails && !(Settled(mine->at[kLocal].state) && mine->lost.ok()))) return false;
    }
    if (given_up) {
      table_.Fail(mine, level, Status(Code::kSuperseded, "it is given up"));
    } else if (fails) {
      failures_ += mine->lost.ok() ? 1 : 0;
      table_.Fail(mine, level, Status(Code::kIo, "it failed"));
    } else {
      if (level == kExternal && stage == kCommit) table_.ReleaseSlots(mine->step);
      table_.Finish(mine, level);
      if (level == kExternal && stage == kCommit) newest_ = std::max(newest_, step);
    }
    mine = nullptr;
    return true;
  }
  template <int64_t step>
  bool BeginChunk() {
    JobRef* const job = Mine<kExternal, kTransfer, step>();
    if (job == nullptr || reads_[step] == shape_.writers) return false;
    const bool reads = table_.BeginRead(*job, 0, 0);
    reads_[step] += reads ? 1 : 0;
    return reads;
  }
  template <int64_t step>
  bool EndChunk() {
    if (reads_[step] == 0) return false;
    table_.EndRead(*Mine<kExternal, kTransfer, step>());
    --reads_[step];
    return true;
  }
  // Retention does not want an older step any more.
  template <int64_t step>
  bool Supersede() {
    if (!shape_.supersedes || step >= newest_ || step >= submitted_) return false;
    const JobRef& job = jobs_[step];
    if (job->over() || job->superseded_by >= 0) return false;
    table_.Supersede(step, newest_);
    CHECK_EQ(job->superseded_by >= 0, held_ != step);
    if (held_ == step) return false;
    return true;
  }
  // The ranks agree to give up the newest step that waits, for one to come.
  template <int64_t step>
  bool Hold() {
    if (!shape_.supersedes || held_ >= 0 || step >= submitted_) return false;
    const bool held = table_.Hold(step);
    held_ = held ? step : -1;
    return held;
  }
  bool Replace() {
    if (held_ < 0) return false;
    CHECK(table_.Replace(held_, kSteps));
    CHECK(jobs_[static_cast<size_t>(held_)]->over());
    held_ = -1;
    return true;
  }
  bool LetGo() {
    if (held_ < 0) return false;
    held_ = -1;
    return !table_.Hold(-1);
  }
  template <LevelId level, size_t stage>
  JobRef& Worker(size_t n) {
    return working_[level == kLocal ? kMostStages : stage][n];
  }

  // clang-format off
#define OF_STEP(step)                                                                          \
  &Walker::End<kLocal, 0, false, step>, &Walker::End<kLocal, 0, true, step>,                   \
      &Walker::End<kExternal, kTransfer, false, step>, &Walker::End<kExternal, kTransfer, true, step>, \
      &Walker::End<kExternal, kPublish, false, step>, &Walker::End<kExternal, kPublish, true, step>,   \
      &Walker::End<kExternal, kCommit, false, step>, &Walker::End<kExternal, kCommit, true, step>,     \
      &Walker::BeginChunk<step>, &Walker::EndChunk<step>, &Walker::Supersede<step>, &Walker::Hold<step>
  // clang-format on
  static constexpr Action kActions[] = {
      &Walker::Submit,
      &Walker::Begin<kLocal, 0>,
      &Walker::Begin<kExternal, kTransfer>,
      &Walker::Begin<kExternal, kPublish>,
      &Walker::Begin<kExternal, kCommit>,
      &Walker::Replace,
      &Walker::LetGo,
      &Walker::Tune,
      OF_STEP(0),
      OF_STEP(1),
      OF_STEP(2),
  };

  const Shape shape_;
  JobTable table_;
  std::vector<JobRef> jobs_;
  JobRef working_[kMostStages + 1][kMostTransfers];
  int64_t submitted_ = 0;
  int64_t newest_ = -1;  // committed
  int64_t held_ = -1;
  size_t transfers_ = shape_.transfers;
  size_t uncommitted_ = SIZE_MAX;  // as far as it is set anew
  bool in_order_[kSteps] = {};     // whether it began with one transfer, and there was one since
  int failures_ = 0;
  bool reserved_ = false;
  size_t reads_[kSteps] = {0, 0, 0};  // how many chunks of each step are being read from memory
};

// RETURNS how many states there are.
size_t Walk(const Shape& shape) {
  std::set<std::string> seen;
  size_t ends = 0;
  // Depth first; a table can't be copied, so each state is reached anew, from the beginning.
  const std::function<void(std::vector<size_t>*)> visit = [&](std::vector<size_t>* path) {
    bool any = false;
    std::unique_ptr<Walker> walker;
    for (size_t action = 0; action < Walker::actions(); ++action) {
      if (walker == nullptr) {
        walker = std::make_unique<Walker>(shape);
        for (const size_t done : *path) CHECK(walker->Do(done));
      }
      if (!walker->Do(action)) continue;  // it has changed nothing
      any = true;
      walker->Check();
      const bool is_new = seen.insert(walker->State()).second;
      walker.reset();
      if (!is_new) continue;
      path->push_back(action);
      visit(path);
      path->pop_back();
    }
    if (any) return;
    CHECK(walker->Ended());  // nothing can be done any more: all must be over, or some would wait for ever
    walker->CheckEnd();
    ++ends;
  };
  std::vector<size_t> path;
  visit(&path);
  CHECK(ends > 0);
  return seen.size();
}

void Tell(const Shape& shape, size_t states) {
  std::printf("%u slots, %zu transfers: %zu states\n", shape.slots, shape.transfers, states);
  CHECK(states > 100);
}

// Of the table itself: where it ends, and that nothing leads two ways.
constexpr LevelState kStates[] = {LevelState::kNone, LevelState::kRunning, LevelState::kDone, LevelState::kFailed,
                                  LevelState::kLeft};
constexpr Change kChanges[] = {Change::kBegin, Change::kPass, Change::kFinish, Change::kFail, Change::kLeave};

void TheTableIsAFunctionThatEnds() {
  size_t changes = 0;
  for (const LevelState from : kStates) {
    for (const Change change : kChanges) {
      LevelState to = from;
      if (!Apply(change, &to)) continue;
      ++changes;
      CHECK(to != from);
      // What has settled is never worked on again, and what failed or is superseded never changes.
      CHECK(!Settled(from) || (from == LevelState::kDone && to == LevelState::kLeft));
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
  for (const Shape& shape : shapes) Tell(shape, Walk(shape));
}

// Three checkpoints on their way at once, each written by two threads, one of whose writes fails: whichever ends first,
// and whatever is given up for a newer one.
void EveryInterleavingKeepsTheInvariants() {
  const Home kC = Home::kCaller;
  const Home kB = Home::kBuffer;
  const Home kS = Home::kSlot;
  const Shape shapes[] = {
      {0, {kC, kC, kC}, -1, false, 3, 2, 1, true}, {0, {kC, kB, kB}, -1, false, 3, 2, 1, true},
      {2, {kC, kC, kC}, -1, false, 3, 2, 1, true}, {2, {kC, kS, kS}, -1, false, 2, 2, 1, true},
      {1, {kC, kC, kC}, -1, false, 3, 2, 1, true}, {3, {kS, kS, kS}, -1, true, 3, 2, 1, true},
      {2, {kC, kB, kB}, -1, false, 1, 2, 1, true}, {2, {kC, kS, kS}, 1, false, 3, 2, 1, true},
      {1, {kC, kB, kB}, -1, false, 1, 2, 0, true}, {1, {kC, kC, kC}, -1, false, 2, 1, 0, true},
  };
  for (const Shape& shape : shapes) Tell(shape, Walk(shape));
}

// The settings change at any moment: from several checkpoints at once to one, and from one to several.
void EveryInterleavingKeepsTheInvariantsOfNewSettings() {
  const Home kC = Home::kCaller;
  const Home kB = Home::kBuffer;
  const Home kS = Home::kSlot;
  const Shape shapes[] = {
      {0, {kC, kC, kC}, -1, false, 3, 1, 1, false, 0, 1}, {0, {kC, kB, kB}, -1, false, 3, 1, 0, true, 1, 3},
      {2, {kC, kS, kS}, -1, false, 2, 1, 0, true, 0, 1},  {1, {kB, kB, kB}, -1, false, 2, 1, 0, true, 1, 2},
      {3, {kS, kS, kS}, 1, true, 3, 1, 0, false, 0, 2},
  };
  for (const Shape& shape : shapes) Tell(shape, Walk(shape));
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::TheTableIsAFunctionThatEnds();
  deepfreeze::ThreeCheckpointsInEveryOrder();
  deepfreeze::EveryInterleavingKeepsTheInvariants();
  deepfreeze::EveryInterleavingKeepsTheInvariantsOfNewSettings();
}
