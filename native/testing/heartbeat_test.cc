// The heartbeats of a rank that takes long, and what the other ranks conclude from them.
#include "store/dir_meeting.h"
#include "store/partial.h"
#include "testing/check.h"
#include "testing/fault_env.h"
#include "testing/faults_of.h"

namespace deepfreeze {
namespace {

struct Step {
  TemporaryDir run;
  Identity identity;
  Step() {
    identity.step = 40;
    identity.rank = 3;
    identity.world = 4;
  }
  std::string path() const { return PartialPath(run.path(), identity.step, identity.attempt); }
  PartialState State() const {
    PartialState state;
    CHECK_OK(ScanPartial(Env::Posix(), run.path(), identity.step, identity.attempt, &state));
    return state;
  }
};

void ABeatIsOneFileWithAGrowingNumber() {
  Step step;
  DirMeeting meeting(Env::Posix(), step.run.path(), step.identity);
  meeting.Beat(40, 1);
  CHECK(!step.State().exists);  // who only beats makes no directory
  CHECK_OK(Env::Posix()->MakeDir(step.path(), 0777));
  for (uint64_t number = 2; number <= 4; ++number) {
    meeting.Beat(40, number);
    const PartialState state = step.State();
    CHECK_EQ(state.alive.size(), 1U);
    CHECK(state.alive[0].first == 3 && state.alive[0].second == number);
  }
}

void ABeatThatFailsIsFollowedByTheNext() {
  Step step;
  CHECK_OK(Env::Posix()->MakeDir(step.path(), 0777));
  FaultEnv env(Env::Posix(), FaultsOf("fail=EIO:rename::1+,fail=EIO:open::2"), "");
  DirMeeting meeting(&env, step.run.path(), step.identity);
  Pulse pulse;
  CHECK(!pulse.Moved(step.State()));
  uint64_t beat = 0;
  for (const bool shown : {true, false, true}) {
    meeting.Beat(40, ++beat);
    CHECK_EQ(pulse.Moved(step.State()), shown);
  }
}

PartialState Seen(std::vector<uint32_t> present, std::vector<std::pair<uint32_t, uint64_t>> alive) {
  PartialState state;
  state.exists = true;
  state.present = std::move(present);
  state.alive = std::move(alive);
  return state;
}

void OnlyWhatIsNewAndOfARankThatIsAwaitedMoves() {
  Pulse pulse;
  CHECK(!pulse.Moved(Seen({0}, {{1, 5}})));  // it may have been there for long
  CHECK(!pulse.Moved(Seen({0}, {{1, 5}})));
  CHECK(pulse.Moved(Seen({0}, {{1, 6}})));
  CHECK(!pulse.Moved(Seen({0}, {})));  // its name was changing
  CHECK(!pulse.Moved(Seen({0}, {{1, 6}})));
  CHECK(pulse.Moved(Seen({0}, {{1, 6}, {2, 1}})));
  CHECK(pulse.Moved(Seen({0, 2}, {{1, 6}, {2, 1}})));  // a record
  CHECK(!pulse.Moved(Seen({0, 2}, {{1, 6}, {2, 9}})));
  CHECK(pulse.Moved(Seen({0, 2}, {{1, 7}, {2, 9}})));
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::ABeatIsOneFileWithAGrowingNumber();
  deepfreeze::ABeatThatFailsIsFollowedByTheNext();
  deepfreeze::OnlyWhatIsNewAndOfARankThatIsAwaitedMoves();
}
