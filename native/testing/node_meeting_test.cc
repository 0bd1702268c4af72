// Ranks of one node that look at the store for each other: who looks, and what happens when one dies, when there is no
// shared memory, or when somebody else's bytes are in it.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "testing/fault_env.h"
#include "testing/faults_of.h"
#include "testing/simulated_ranks.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kPatience = Ranks::kPatienceUs;

// The number of looks at the store that `look` makes.
template <typename Look>
uint64_t Visits(const Ranks& ranks, uint32_t rank, const Look& look) {
  const uint64_t before = ranks.envs[rank]->refreshes;
  look();
  return ranks.envs[rank]->refreshes - before;
}

struct Node : Ranks {
  explicit Node(uint32_t world) : Ranks(world, world) { SealAll(1); }
  // The rank looks, sees `verdict`, and goes to the store for it or not.
  void Looks(uint32_t rank, int64_t step, Verdict verdict, bool at_the_store) {
    std::string why;
    const uint64_t visits = Visits(*this, rank, [&] { CHECK(Look(rank, step, &why) == verdict); });
    CHECK_EQ(visits > 0, at_the_store);
    CHECK_EQ(why.empty(), verdict != Verdict::kFailed);
  }
  Verdict LookAtOne(uint32_t rank) {
    std::string why;
    return Look(rank, 1, &why);
  }
  std::string Page() const { return Join(memory.path(), NodePageName(::geteuid(), Id{}, 0)); }
  bool HasPage() const { return ::access(Page().c_str(), F_OK) == 0; }
};

void OneRankLooksForAll() {
  Node node(4);
  for (int round = 0; round < 3; ++round) {
    node.Looks(1, 1, Verdict::kPending, true);
    node.Looks(2, 1, Verdict::kPending, false);
    node.Looks(3, 1, Verdict::kPending, false);
  }
  node.CommitStep(1);
  node.Looks(2, 1, Verdict::kCommitted, true);
  node.Looks(1, 1, Verdict::kCommitted, false);
  node.Looks(3, 1, Verdict::kCommitted, false);
}

// Steps are looked at one by one: what a rank has seen of one says nothing of the next.
void EachStepIsLookedAt() {
  Node node(3);
  node.SealAll(2);
  node.CommitStep(1);
  node.Looks(1, 1, Verdict::kCommitted, true);
  node.Looks(1, 2, Verdict::kPending, true);
  node.Looks(2, 2, Verdict::kPending, false);
  node.Looks(2, 1, Verdict::kCommitted, false);
  // Rank 1 has noted so many later steps that step 1 is no longer among them.
  for (int64_t step = 2; step < 2 + static_cast<int64_t>(NodePage::kSteps); ++step) {
    if (step > 2) node.SealAll(step);
    node.CommitStep(step);
    node.Looks(1, step, Verdict::kCommitted, true);
  }
  node.Looks(2, 1, Verdict::kCommitted, true);
}

// The rank that looked for all is gone: the others' second look goes to the store.
void ARankThatLooksNoLongerIsNotWaitedFor() {
  Node node(4);
  node.Looks(1, 1, Verdict::kPending, true);
  node.Looks(2, 1, Verdict::kPending, false);
  node.meetings[1].reset();
  node.CommitStep(1);
  node.Looks(2, 1, Verdict::kCommitted, true);
  node.Looks(3, 1, Verdict::kCommitted, false);
}

// Rank 0 keeps a failed step until each rank has answered, so each goes to the store for the reason.
void EachRankAnswersAFailure() {
  Node node(4);
  CHECK_OK(node.meetings[0]->Failed(1, "no space"));
  for (uint32_t rank = 1; rank < 4; ++rank) {
    node.Looks(rank, 1, Verdict::kFailed, true);
    CHECK(node.Exists(Join(PartialName(1, Id{}), FailedName(rank))));
  }
}

// An error says nothing of the step, neither to the rank nor to the others.
void AnErrorIsNoVerdict() {
  Node node(3);
  const std::string aside = node.run.path() + "-aside";
  CHECK(::rename(node.run.path().c_str(), aside.c_str()) == 0);
  CHECK(::symlink("nowhere", node.run.path().c_str()) == 0);
  Verdict verdict = Verdict::kPending;
  std::string why;
  for (int look = 0; look < 4; ++look) {
    (void)node.meetings[1 + look % 2]->Look(1, &verdict, &why).ok();
    CHECK(verdict == Verdict::kPending);
  }
  CHECK(::unlink(node.run.path().c_str()) == 0 && ::rename(aside.c_str(), node.run.path().c_str()) == 0);
  node.CommitStep(1);
  for (int look = 0; look < 2 && verdict == Verdict::kPending; ++look) verdict = node.LookAtOne(2);
  CHECK(verdict == Verdict::kCommitted);
}

// With a file in the place of the memory, with a directory in the place of the page, without room: each rank looks.
void WithoutSharedMemoryEachRankLooks() {
  for (const char* obstacle : {"missing", "a directory", "a link", "a second name"}) {
    Node node(3);
    for (uint32_t rank = 0; rank < 3; ++rank) node.meetings[rank].reset();
    const std::string page = node.Page();
    const std::string other = Join(node.memory.path(), "other");
    CHECK_OK(Env::Posix()->Unlink(page));
    std::unique_ptr<File> file;
    CHECK_OK(Env::Posix()->Open(other, OpenMode::kPrivate, &file));
    if (obstacle == std::string("a directory")) CHECK(::mkdir(page.c_str(), 0700) == 0);
    if (obstacle == std::string("a link")) CHECK(::symlink(other.c_str(), page.c_str()) == 0);
    if (obstacle == std::string("a second name")) CHECK(::link(other.c_str(), page.c_str()) == 0);
    const std::string moved = node.memory.path() + "-moved";
    const bool missing = obstacle == std::string("missing");
    if (missing) CHECK(::rename(node.memory.path().c_str(), moved.c_str()) == 0);
    for (uint32_t rank = 0; rank < 3; ++rank) node.meetings[rank] = node.Meet(rank, 3);
    for (uint32_t rank : {1, 2, 1, 2}) node.Looks(rank, 1, Verdict::kPending, true);
    node.CommitStep(1);
    for (uint32_t rank : {1, 2}) node.Looks(rank, 1, Verdict::kCommitted, true);
    if (missing) CHECK(::rename(moved.c_str(), node.memory.path().c_str()) == 0);
    uint64_t size = 0;
    CHECK_OK(file->Size(&size));
    CHECK_EQ(size, 0U);  // nobody wrote into somebody else's file
  }
}

// The memory is full, or gives wrong answers, for one rank or for all.
void WhateverCallOnThePageFailsNothingIsLost() {
  for (const std::string call : {"open", "pread", "pwrite", "close", "unlink"}) {
    for (const std::string action : {"fail=ENOSPC", "fail=EIO", "short"}) {
      for (const std::string nth : {"1", "2", "1+", "2+"}) {
        FaultEnv env(Env::Posix(), FaultsOf(action + ":" + call + ":.looks:" + nth), "");
        Node node(3);
        for (const uint32_t rank : {1, 2}) {
          node.meetings[rank].reset();
          const Identity identity = Ranks::At(1, rank, 3);
          node.meetings[rank] =
              std::make_unique<NodeMeeting>(std::make_unique<DirMeeting>(&env, node.run.path(), identity), &env,
                                            identity, node.memory.path(), std::vector<uint32_t>{0, 1, 2}, kPatience);
        }
        for (const uint32_t rank : {1, 2, 1, 2}) CHECK(node.LookAtOne(rank) == Verdict::kPending);
        node.CommitStep(1);
        for (const uint32_t rank : {2, 1}) {
          CHECK(node.LookAtOne(rank) == Verdict::kCommitted || node.LookAtOne(rank) == Verdict::kCommitted);
        }
      }
    }
  }
}

// Bytes that no rank has written, and a part that is half written, are no looks.
void GarbageInThePageIsNotBelieved() {
  Node node(3);
  std::unique_ptr<File> page;
  for (auto& meeting : node.meetings) meeting.reset();
  for (uint32_t rank = 0; rank < 3; ++rank) node.meetings[rank] = node.Meet(rank, 3);
  CHECK_OK(Env::Posix()->Open(node.Page(), OpenMode::kPrivate, &page));  // before its name goes
  node.Looks(1, 1, Verdict::kPending, true);
  node.CommitStep(1);
  node.Looks(1, 1, Verdict::kCommitted, true);
  uint64_t size = 0;
  CHECK_OK(page->Size(&size));
  std::string bytes(size, '\0');
  CHECK_OK(ReadFull(page.get(), 0, bytes.data(), size));
  for (size_t at = 0; at < size; at += 7) {
    std::string broken = bytes;
    broken[at] = static_cast<char>(broken[at] ^ 0x55);
    CHECK_OK(WriteFull(page.get(), 0, broken.data(), size));
    // Taken over from rank 1's part, or seen in the store; either way it is right.
    std::string why;
    CHECK(node.Look(2, 1, &why) == Verdict::kCommitted);
  }
  CHECK_OK(page->Truncate(0));
  node.SealAll(2);
  node.Looks(2, 2, Verdict::kPending, true);
}

// Its name goes when all ranks have it open; a job that is killed afterwards leaves none.
void ThePageHasNoNameOnceAllHaveIt() {
  Node node(3);
  CHECK(!node.HasPage());
  Node late(3);  // one of them comes late
  late.meetings[2].reset();
  CHECK(!late.HasPage());
  late.meetings[2] = late.Meet(2, 3);
  CHECK(late.HasPage());  // a page of its own, that the others do not have
  late.Looks(1, 1, Verdict::kPending, true);
  late.Looks(2, 1, Verdict::kPending, true);
  late.meetings[2].reset();
  CHECK(!late.HasPage());
}

// Two jobs of one run have attempts of different ids.
void AnotherAttemptsPageIsNeverMet() {
  Node node(2);
  Identity other = Ranks::At(1, 0, 2);
  other.attempt[3] = 7;
  NodeMeeting stranger(std::make_unique<DirMeeting>(Env::Posix(), node.run.path(), other), Env::Posix(), other,
                       node.memory.path(), {0, 1}, kPatience);
  Verdict verdict = Verdict::kPending;
  std::string why;
  CHECK_OK(stranger.Look(1, &verdict, &why));
  node.Looks(1, 1, Verdict::kPending, true);
}

// Real processes: rank 1 is killed while it looks for all, rank 2 forks a child that ends.
void AKilledRankAndAForkedChildChangeNothing() {
  Node node(3);
  const pid_t child = ::fork();
  if (child == 0) {
    auto mine = node.Meet(1, 3);
    Verdict verdict = Verdict::kPending;
    std::string why;
    for (;;) (void)mine->Look(1, &verdict, &why).ok();
  }
  CHECK(child > 0);
  Env::Posix()->SleepMillis(20);
  CHECK(::kill(child, SIGKILL) == 0 && ::waitpid(child, nullptr, 0) == child);
  node.CommitStep(1);
  const pid_t other = ::fork();
  if (other == 0) ::_exit(0);
  CHECK(other > 0 && ::waitpid(other, nullptr, 0) == other);
  // The killed rank may have looked since: at the latest the second look goes to the store.
  std::string why;
  const bool first = node.Look(2, 1, &why) == Verdict::kCommitted;
  CHECK(first || node.Look(2, 1, &why) == Verdict::kCommitted);
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  OneRankLooksForAll();
  EachStepIsLookedAt();
  ARankThatLooksNoLongerIsNotWaitedFor();
  EachRankAnswersAFailure();
  AnErrorIsNoVerdict();
  WithoutSharedMemoryEachRankLooks();
  WhateverCallOnThePageFailsNothingIsLost();
  GarbageInThePageIsNotBelieved();
  ThePageHasNoNameOnceAllHaveIt();
  AnotherAttemptsPageIsNeverMet();
  AKilledRankAndAForkedChildChangeNothing();
}
