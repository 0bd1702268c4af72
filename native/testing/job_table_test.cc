// The table of jobs: no two jobs wait for each other, and memory and slots are released at the right time.
#include "engine/job_table.h"

#include <thread>

#include "deepfreeze/deepfreeze.h"
#include "testing/check.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;

JobRef Submitted(JobTable* table, int64_t step, bool captured) {
  auto job = std::make_shared<Job>();
  job->step = step;
  CHECK_OK(table->Submit(job, captured, kLong));
  return job;
}

JobRef CapturedInSlot(JobTable* table, int64_t step) {
  uint32_t slot = 0;
  CHECK_OK(table->ReserveSlot(kLong, &slot));
  return Submitted(table, step, true);
}

// A capture in the caller's memory is slow to reach the local tier, and later captures, which lie there from the
// beginning, have taken all slots: these are free again only when their steps are committed, after this one.
void SlotsTakenByLaterStepsAreNotWaitedFor() {
  JobTable table(Env::Posix(), 2, 2, true);
  Submitted(&table, 1, false);
  CapturedInSlot(&table, 2);
  CapturedInSlot(&table, 3);
  JobRef job = table.NextForLocal();
  while (job->step != 1) job = table.NextForLocal();
  CHECK_EQ(table.AcquireSlot(job), -1);
  CHECK(!table.stopping());
  table.SkipLocal(job);
  CHECK_EQ(table.NextForTransfer()->step, 1);
}

// The same while one slot is still an older step's, and the next capture takes it as soon as it is free.
void ASlotThatIsLostToALaterCaptureIsNotWaitedFor() {
  JobTable table(Env::Posix(), 2, 2, true);
  const JobRef oldest = CapturedInSlot(&table, 1);
  while (table.NextForLocal() != oldest) {
  }
  table.FinishLocal(oldest);
  Submitted(&table, 2, false);
  CapturedInSlot(&table, 3);
  JobRef job = table.NextForLocal();
  while (job->step != 2) job = table.NextForLocal();
  int slot = 0;
  std::thread local([&] { slot = table.AcquireSlot(job); });
  std::thread capture([&] {
    uint32_t reserved = 0;
    CHECK_OK(table.ReserveSlot(kLong, &reserved));
  });
  CHECK_EQ(table.NextForTransfer(), oldest);
  table.FinishTransfer(oldest);
  CHECK_EQ(table.NextForPublish(), oldest);
  table.Published(oldest);
  CHECK_EQ(table.NextForCommit(), oldest);
  table.Committed(oldest);
  table.Settle(oldest);
  local.join();
  if (slot >= 0) {  // it was first; the capture gets the slot of step 2 or 3 in its turn
    table.FinishLocal(job);
    CHECK_EQ(table.NextForTransfer(), job);
    table.FinishTransfer(job);
    CHECK_EQ(table.NextForPublish(), job);
    table.Published(job);
    CHECK_EQ(table.NextForCommit(), job);
    table.Committed(job);
    table.Settle(job);
  }
  capture.join();
}

// Its idle slots are removed: a capture must not be given one of them, nor wait for one for ever.
void ALocalTierThatIsGivenUpTakesNoCaptures() {
  JobTable table(Env::Posix(), 2, 1, true);
  CapturedInSlot(&table, 1);
  std::thread capture([&] {
    uint32_t slot = 0;
    CHECK(table.ReserveSlot(kLong, &slot).code() == Code::kIo);
  });
  table.DropLocalTier("it is full");
  capture.join();
  uint32_t number = 0;
  CHECK(table.ReserveSlot(0, &number).code() == Code::kIo);
  CHECK_OK(table.ReserveBuffer(0, &number));
}

// Memory outside of slots is not released while the local writer reads it, also if the step has failed meanwhile.
void WhatTheLocalWriterReadsIsNotReleased() {
  for (const bool whole : {true, false}) {
    JobTable table(Env::Posix(), 2, 2, true);
    const JobRef job = CapturedInSlot(&table, 1);
    CHECK_EQ(table.NextForLocal(), job);
    CHECK_EQ(table.NextForTransfer(), job);
    table.Fail(job, Status(Code::kIo, "the store"));
    std::vector<Report> reports = table.Poll(8);
    CHECK(reports.size() == 1 && reports.front().code == Code::kIo && !reports.front().released);
    if (whole) {
      table.FinishLocal(job);
    } else {
      table.SkipLocal(job);
    }
    reports = table.Poll(8);
    CHECK(reports.size() == 1 && reports.front().released);
  }
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::WhatTheLocalWriterReadsIsNotReleased();
  deepfreeze::ALocalTierThatIsGivenUpTakesNoCaptures();
  deepfreeze::SlotsTakenByLaterStepsAreNotWaitedFor();
  for (int n = 0; n < 200; ++n) deepfreeze::ASlotThatIsLostToALaterCaptureIsNotWaitedFor();
}
