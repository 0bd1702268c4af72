// What retention is asked to do: it is done once, all of it, and not before a commit is durable.
#include "engine/upkeep.h"

#include <vector>

#include "testing/check.h"
#include "testing/waiting.h"

namespace deepfreeze {
namespace {

using Steps = std::vector<int64_t>;

bool Idle(UpkeepQueue* queue) { return queue->AwaitUntil(Deadline(0)); }

Upkeep Taken(UpkeepQueue* queue) {
  Upkeep upkeep;
  CHECK(queue->Take(&upkeep));
  return upkeep;
}

void AllThatWasAskedForIsTakenOnce() {
  UpkeepQueue queue;
  CHECK(Idle(&queue) && !queue.Await());
  queue.AskRemoval({1});
  queue.AskRemoval({2, 3});
  queue.AskCleanUp(5, true);
  queue.AskCleanUp(4, true);
  Upkeep upkeep = Taken(&queue);
  CHECK(upkeep.remove == (Steps{1, 2, 3}) && upkeep.gathered == (Steps{5, 4}));
  CHECK(upkeep.committed == 5 && !upkeep.tidy);
  CHECK(!Idle(&queue));  // it is being done
  queue.Finish();
  CHECK(Idle(&queue) && !queue.Await());
  queue.AskTidy();
  CHECK(!Idle(&queue));
  upkeep = Taken(&queue);
  CHECK(upkeep.tidy && upkeep.committed == -1 && upkeep.remove.empty() && upkeep.gathered.empty());
}

// A loss of power may take the newest commit: until a newer one is durable nothing older goes.
void NothingIsTakenBeforeANewerCommitIsDurable() {
  UpkeepQueue queue;
  CHECK(!queue.Held());
  queue.AskCleanUp(5, false);
  queue.AskCleanUp(4, false);
  queue.AskRemoval({1});
  queue.AskTidy();
  for (const int64_t durable : {3, 4, 5}) {  // which say nothing of step 5, or come too late
    queue.AskCleanUp(durable, true);
    CHECK(queue.Held() && Idle(&queue) && !queue.Await());
  }
  queue.AskCleanUp(6, true);
  CHECK(!queue.Held() && !Idle(&queue));
  const Upkeep upkeep = Taken(&queue);
  CHECK(upkeep.committed == 6 && upkeep.tidy && upkeep.remove == Steps{1});
  CHECK(upkeep.gathered == (Steps{3, 4, 5, 6}));
  queue.Finish();
  queue.AskCleanUp(6, false);  // older than what is known to be durable, or as old
  CHECK(!queue.Held());
  queue.AskCleanUp(7, false);
  CHECK(queue.Held());
}

// Step 0 is a step as any other.
void TheFirstStepMayBeHeldAndCleanedUpAfter() {
  UpkeepQueue queue;
  queue.AskCleanUp(0, true);
  CHECK(Taken(&queue).committed == 0);
  queue.Finish();
  UpkeepQueue other;
  other.AskRemoval({7});
  other.AskTidy();
  CHECK(Taken(&other).tidy);
  other.TidyAgain();
  other.Finish();
  other.AskCleanUp(0, false);
  other.AskRemoval({8});
  CHECK(other.Held() && Idle(&other));
}

// Other ranks have still to learn something, so it is tried again a little later.
void TidyingIsTriedAgainALittleLater() {
  UpkeepQueue queue;
  queue.AskTidy();
  for (int n = 0; n < 2; ++n) {
    CHECK(Taken(&queue).tidy);
    queue.TidyAgain();
    queue.Finish();
    CHECK(!Idle(&queue));  // there will be work in a moment
  }
  CHECK(Taken(&queue).tidy);
  queue.Finish();
  CHECK(Idle(&queue));
  queue.AskTidy();
  CHECK(Taken(&queue).tidy);
  for (int n = 0; n < 20; ++n) queue.TidyAgain();
  queue.AskTidy();  // whoever asks begins anew
  CHECK(Taken(&queue).tidy);
  queue.TidyAgain();
  queue.Finish();
  CHECK(!Idle(&queue));
  queue.AskCleanUp(1, false);
  CHECK(Idle(&queue));  // held back, this too
}

void WhoeverWaitsIsWoken() {
  UpkeepQueue queue;
  {
    Waiting work([&] { CHECK(Taken(&queue).remove == Steps{1}); });
    queue.AskRemoval({1});
    work.Join();
  }
  {
    Waiting room([&] { CHECK(queue.Await()); });
    Waiting end([&] { CHECK(queue.AwaitUntil(Deadline(60000))); });
    queue.Finish();
    room.Join();
    end.Join();
  }
  {
    Waiting work([&] { CHECK(Taken(&queue).tidy); });
    queue.AskTidy();
    work.Join();
  }
  queue.Finish();
  queue.AskRemoval({2});
  Waiting room([&] { CHECK(queue.Await()); });
  queue.AskCleanUp(9, false);  // holds that back
  room.Join();
  Waiting work([&] { CHECK(Taken(&queue).committed == 10); });
  queue.AskCleanUp(10, true);
  work.Join();
}

void AStoppedQueueGivesOutWhatItHas() {
  UpkeepQueue queue;
  {
    Upkeep upkeep;
    Waiting work([&] { CHECK(!queue.Take(&upkeep)); });
    queue.Stop();
    work.Join();
  }
  queue.AskRemoval({1});
  CHECK(queue.Await());  // at once, although there is work
  CHECK(!queue.AwaitUntil(Deadline(60000)));
  CHECK(Taken(&queue).remove == Steps{1});
  queue.Finish();
  Upkeep none;
  CHECK(!queue.Take(&none));
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  AllThatWasAskedForIsTakenOnce();
  NothingIsTakenBeforeANewerCommitIsDurable();
  TheFirstStepMayBeHeldAndCleanedUpAfter();
  TidyingIsTriedAgainALittleLater();
  for (int n = 0; n < 10; ++n) WhoeverWaitsIsWoken();
  AStoppedQueueGivesOutWhatItHas();
}
