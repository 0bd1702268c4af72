// What ends a wait in the table of jobs: memory, a slot, another level's end, a failure, the end of the engine.
#include <string>
#include <thread>

#include "deepfreeze/deepfreeze.h"
#include "engine/job_table.h"
#include "testing/check.h"
#include "testing/waiting.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kForEver = 100 * kLong;  // of a wait that something else must end

JobRef Submitted(JobTable* table, int64_t step, bool captured) {
  auto job = std::make_shared<Job>();
  job->step = step;
  CHECK_OK(table->Submit(job, captured, kLong));
  return job;
}

// Takes the job through the stages of the external level, from `stage` on.
void Commit(JobTable* table, const JobRef& job, size_t stage = kTransfer) {
  for (; stage <= kCommit; ++stage) {
    CHECK_EQ(table->Next(kExternal, stage), job);
    if (stage == kCommit) table->ReleaseSlots(job->step);
    table->Finish(job, kExternal);
  }
}

TableOptions WithSlots(uint32_t slots) { return TableOptions{2, slots, true}; }

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
