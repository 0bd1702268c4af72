// Each wait in the table of jobs ends: by free memory, a free slot, a failure, or the end of the engine.
#include <string>
#include <thread>

#include "testing/table_jobs.h"
#include "testing/waiting.h"

namespace deepfreeze {
namespace {

// A capture that waits for memory gets that of a checkpoint as soon as it is whole on the local tier.
void ACaptureGetsTheMemoryOfWhatIsLocal() {
  JobTable table(Env::Posix(), TableOptions{1, 2, true});
  const JobRef first = Submitted(&table, 1, false);
  CHECK_EQ(table.Next(kLocal, 0), first);
  CHECK(table.AcquireSlot(first) >= 0);
  auto second = std::make_shared<Job>();
  second->step = 2;
  Waiting capture([&] { CHECK_OK(table.Submit(second, false, kForEver)); });
  table.Finish(first, kLocal);
  capture.Join();
  CHECK(first->released());
}

// The local writer waits for a slot until there is one, or the step needs none any more; meanwhile it says so.
void TheLocalWriterWaitsForASlotNoLongerThanTheStep() {
  for (const std::string end : {"free", "failed", "stopped"}) {
    JobTable table(Env::Posix(), TableOptions{2, 1, true});
    const JobRef first = Submitted(&table, 1, false);
    CHECK_EQ(table.Next(kLocal, 0), first);
    CHECK_EQ(table.AcquireSlot(first), 0);
    table.Finish(first, kLocal);
    const JobRef second = Submitted(&table, 2, false);
    CHECK_EQ(table.Next(kLocal, 0), second);
    int slot = 7;
    Waiting local([&] { slot = table.AcquireSlot(second); });
    const auto waits_for = [&] { return table.Unfinished(8).back().waits_for; };
    while (waits_for().empty()) std::this_thread::yield();
    CHECK_EQ(waits_for(), "waits for a free slot on the local tier");
    if (end == "free") {
      Commit(&table, first);
      table.ReleaseSlots(2);  // a newer step than the slot's is committed
    } else if (end == "failed") {
      CHECK_EQ(table.TryNext(kExternal, kTransfer), first);
      table.Finish(first, kExternal);
      CHECK_EQ(table.TryNext(kExternal, kTransfer), second);
      table.Fail(second, kExternal, Status(Code::kIo, "the store"));
    } else {
      table.Stop();
    }
    local.Join();
    CHECK_EQ(slot, end == "free" ? 0 : SlotPool::kNoSlot);
    if (end != "failed") CHECK_EQ(waits_for(), "");
  }
}

// A level that waits for another one is woken by its failure.
void AFailureOfALevelWakesThoseThatWaitForIt() {
  JobTable table(Env::Posix(), WithSlots(2));
  const JobRef job = Submitted(&table, 1, false);
  CHECK_EQ(table.Next(kLocal, 0), job);
  Waiting other([&] { CHECK(table.AwaitSettled(job, kLocal, CondVar::Time::max()) == LevelState::kFailed); });
  table.Fail(job, kLocal, Status(Code::kNoSpace, "no slot"));
  other.Join();
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  ACaptureGetsTheMemoryOfWhatIsLocal();
  for (int n = 0; n < 5; ++n) TheLocalWriterWaitsForASlotNoLongerThanTheStep();
  AFailureOfALevelWakesThoseThatWaitForIt();
}
