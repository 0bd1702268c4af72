// The table of jobs: no two jobs wait for each other, and memory and slots are released at the right time.
#include "engine/job_table.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>

#include "deepfreeze/deepfreeze.h"
#include "testing/check.h"
#include "testing/table_jobs.h"
#include "testing/waiting.h"

namespace deepfreeze {
namespace {

JobRef CapturedInSlot(JobTable* table, int64_t step) {
  int slot = SlotPool::kNoSlot;
  CHECK_OK(table->Reserve(Home::kSlot, kLong, &slot));
  return Submitted(table, step, true);
}

// A table of an engine that was opened with so many transfers, with captures in the caller's memory.
TableOptions WithTransfers(size_t transfers) {
  TableOptions options{4, 4, false};
  for (StageRow& stage : options.levels[kExternal].stages) stage.threads = transfers;
  return options;
}

// A capture in the caller's memory is slow to reach the local tier, and later captures, which lie there from the
// beginning, have taken all slots: these are free again only when their steps are committed, after this one.
void SlotsTakenByLaterStepsAreNotWaitedFor() {
  JobTable table(Env::Posix(), WithSlots(2));
  Submitted(&table, 1, false);
  CapturedInSlot(&table, 2);
  CapturedInSlot(&table, 3);
  JobRef job = table.Next(kLocal, 0);
  while (job->step != 1) job = table.Next(kLocal, 0);
  CHECK_EQ(table.AcquireSlot(job), -1);
  CHECK(!table.stopping());
  table.Fail(job, kLocal, Status(Code::kNoSpace, "no slot"));
  CHECK_EQ(table.Next(kExternal, kTransfer)->step, 1);
}

// The same while one slot is still an older step's, and the next capture takes it as soon as it is free.
void ASlotThatIsLostToALaterCaptureIsNotWaitedFor() {
  JobTable table(Env::Posix(), WithSlots(2));
  const JobRef oldest = CapturedInSlot(&table, 1);
  while (table.Next(kLocal, 0) != oldest) {
  }
  table.Finish(oldest, kLocal);
  Submitted(&table, 2, false);
  CapturedInSlot(&table, 3);
  JobRef job = table.Next(kLocal, 0);
  while (job->step != 2) job = table.Next(kLocal, 0);
  int slot = 0;
  std::thread local([&] { slot = table.AcquireSlot(job); });
  std::thread capture([&] {
    int reserved = SlotPool::kNoSlot;
    CHECK_OK(table.Reserve(Home::kSlot, kLong, &reserved));
  });
  Commit(&table, oldest);
  local.join();
  if (slot >= 0) {  // it was first; the capture gets the slot of step 2 or 3 in its turn
    table.Finish(job, kLocal);
    Commit(&table, job);
  }
  capture.join();
}

// Its idle slots are removed: a capture must not be given one of them, nor wait for one for ever.
void ALocalTierThatIsGivenUpTakesNoCaptures() {
  JobTable table(Env::Posix(), WithSlots(1));
  CapturedInSlot(&table, 1);
  std::thread capture([&] {
    int slot = SlotPool::kNoSlot;
    CHECK(table.Reserve(Home::kSlot, kLong, &slot).code() == Code::kIo);
  });
  table.DropLocalTier("it is full");
  capture.join();
  int number = SlotPool::kNoSlot;
  CHECK(table.Reserve(Home::kSlot, 0, &number).code() == Code::kIo);
  CHECK_OK(table.Reserve(Home::kBuffer, 0, &number));
}

// Memory outside of slots is not released while the local writer reads it, also if the step has failed meanwhile.
void WhatTheLocalWriterReadsIsNotReleased() {
  for (const bool whole : {true, false}) {
    JobTable table(Env::Posix(), WithSlots(2));
    const JobRef job = CapturedInSlot(&table, 1);
    CHECK_EQ(table.Next(kLocal, 0), job);
    CHECK_EQ(table.Next(kExternal, kTransfer), job);
    table.Fail(job, kExternal, Status(Code::kIo, "the store"));
    std::vector<Report> reports = table.Poll(8);
    CHECK(reports.size() == 1 && reports.front().code == Code::kIo && !reports.front().released);
    if (whole) {
      table.Finish(job, kLocal);
    } else {
      table.Fail(job, kLocal, Status(Code::kNoSpace, "no slot"));
    }
    reports = table.Poll(8);
    CHECK(reports.size() == 1 && reports.front().released);
  }
}

// Levels begin together, unless a row has one wait for another.
void ALevelWaitsForThoseOfItsRow() {
  for (const bool waits : {false, true}) {
    TableOptions options = WithSlots(2);
    if (waits) options.levels[kExternal].after[static_cast<size_t>(Home::kCaller)] = Only(kLocal);
    JobTable table(Env::Posix(), options);
    const JobRef job = Submitted(&table, 1, false);
    CHECK_EQ(table.Next(kLocal, 0), job);
    CHECK_EQ(table.TryNext(kExternal, kTransfer), waits ? nullptr : job);
    table.Fail(job, kLocal, Status(Code::kNoSpace, "no slot"));
    CHECK_EQ(table.TryNext(kExternal, kTransfer), waits ? job : nullptr);
  }
}

// A change that the table of changes does not have fails the step where it must not end the process, and no other step.
void AFaultOfTheEngineFailsTheStep() {
  TableOptions options = WithSlots(2);
  options.on_fault = OnFault::kFailStep;
  JobTable table(Env::Posix(), options);
  const JobRef job = Submitted(&table, 1, false);
  Waiting wait([&] { CHECK(table.Wait(1, DF_EXTERNAL, kForEver).code() == Code::kIo); });
  table.Finish(job, kLocal);  // which no thread has begun
  wait.Join();
  const std::vector<Report> reports = table.Poll(8);
  CHECK(reports.size() == 1 && reports.front().code == Code::kIo);
  CHECK(reports.front().message.find("fault") != std::string::npos && !reports.front().released);
  CHECK_EQ(reports.front().local_s, -1.0);  // nor is it told as local
  const JobRef next = Submitted(&table, 2, false);
  CHECK_EQ(table.Next(kLocal, 0), next);
  table.Finish(next, kLocal);
  Commit(&table, next);
  CHECK_OK(table.Wait(2, DF_EXTERNAL, kLong));
}

// A fault that follows a failure leaves what is known of the step as it is.
void AFaultDoesNotHideWhyAStepFailed() {
  TableOptions options = WithSlots(2);
  options.on_fault = OnFault::kFailStep;
  JobTable table(Env::Posix(), options);
  const JobRef job = Submitted(&table, 1, false);
  CHECK_EQ(table.Next(kExternal, kTransfer), job);
  for (const char* why : {"the store", "another reason"}) table.Fail(job, kExternal, Status(Code::kNoSpace, why));
  const std::vector<Report> reports = table.Poll(8);
  CHECK(reports.size() == 1 && reports.front().code == Code::kNoSpace && reports.front().message == "the store");
}

// In a test it ends the process, and says why.
void AFaultOfTheEngineEndsATest() {
  int pipe[2];
  CHECK(::pipe(pipe) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe[1], STDERR_FILENO);
    TableOptions options = WithSlots(2);
    options.on_fault = OnFault::kAbort;
    JobTable table(Env::Posix(), options);
    table.Finish(Submitted(&table, 7, false), kLocal);  // which no thread has begun
    ::_exit(0);
  }
  ::close(pipe[1]);
  std::string said;
  char some[256];
  for (ssize_t n = 0; (n = ::read(pipe[0], some, sizeof some)) > 0;) said.append(some, static_cast<size_t>(n));
  ::close(pipe[0]);
  int status = 0;
  CHECK_EQ(::waitpid(child, &status, 0), child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  CHECK(said.find("step 7: a change that engine/level_state.h does not have") != std::string::npos);
}

// Uses up CPU time of the calling thread. RETURNS what the clocks have then.
double Work(const ThreadClocks& clocks) {
  const double begun = clocks.Total();
  while (clocks.Total() < begun + 0.001) {
  }
  return clocks.Total();
}

// Each checkpoint has the CPU time from the end of the one that ended before it to its own, however it ends.
void TheCpuTimesOfAllCheckpointsSumUpToWhatTheThreadsHaveUsed() {
  ThreadClocks clocks;
  const ThreadClocks::Running clock(&clocks, "busy");
  TableOptions options = WithSlots(2);
  options.on_fault = OnFault::kFailStep;
  options.clocks = &clocks;
  JobTable table(Env::Posix(), options);
  double sum = 0;
  const auto cpu_of = [&](int64_t step) {
    const std::vector<Report> reports = table.Poll(8);
    CHECK(reports.size() == 1 && reports.front().step == step);
    return reports.front().cpu_s;
  };
  for (int64_t step = 1; step <= 3; ++step) {
    const JobRef job = Submitted(&table, step, false);
    CHECK_EQ(table.Next(kLocal, 0), job);
    table.Finish(job, kLocal);
    CHECK_EQ(cpu_of(step), -1.0);  // it is whole on the local tier, and neither committed nor failed
    const double used = Work(clocks);
    if (step == 1) Commit(&table, job);
    if (step == 2) {
      CHECK_EQ(table.Next(kExternal, kTransfer), job);
      table.Fail(job, kExternal, Status(Code::kIo, "the store"));
    }
    if (step == 3) table.Finish(job, kExternal);  // which no thread has begun: a fault
    const double cpu = cpu_of(step);
    CHECK(cpu >= 0.001);
    sum += cpu;
    CHECK(sum > used - 1e-9 && sum < clocks.Total() + 1e-9);
  }
}

// Submits a checkpoint whose capture lies at `home`, in memory that is reserved for it there.
Status Captured(JobTable* table, Home home, int64_t step, uint64_t timeout_ms) {
  int number = SlotPool::kNoSlot;
  Status reserved = home == Home::kCaller ? Status() : table->Reserve(home, timeout_ms, &number);
  if (!reserved.ok()) return reserved;
  auto job = std::make_shared<Job>();
  job->step = step;
  return table->Submit(job, home != Home::kCaller, timeout_ms);
}

// Whatever memory is free, and wherever captures go. A checkpoint that has failed counts no more.
void NoMoreAreUncommittedThanTheBound() {
  for (const Home home : {Home::kSlot, Home::kBuffer, Home::kCaller}) {
    for (const bool fails : {false, true}) {
      TableOptions options = WithSlots(4);
      options.in_flight = 4;
      options.uncommitted = 2;
      JobTable table(Env::Posix(), options);
      const auto submit = [&](int64_t step, uint64_t timeout_ms) { return Captured(&table, home, step, timeout_ms); };
      CHECK_EQ(table.Room(home), 2u);
      if (home != Home::kCaller) {  // what is reserved is captured next
        int number = SlotPool::kNoSlot;
        CHECK_OK(table.Reserve(home, 0, &number));
        CHECK_EQ(table.Room(home), 1u);
        table.Unreserve();
      }
      CHECK_OK(submit(1, 0));
      CHECK_OK(submit(2, 0));
      CHECK_EQ(table.Room(home), 0u);
      CHECK(submit(3, 0).code() == Code::kTimeout);
      std::thread waits([&] { CHECK_OK(submit(3, kLong)); });
      const JobRef first = table.Next(kExternal, kTransfer);
      if (fails) {
        table.Fail(first, kExternal, Status(Code::kIo, "the store"));
      } else {
        table.Finish(first, kExternal);
        Commit(&table, first, kPublish);
      }
      waits.join();
      CHECK_EQ(table.Room(home), 0u);
    }
  }
}

// The next capture waits for the parts of the only buffer, and is woken by each that it waits for.
void ACaptureIsWokenByThePartThatIsRead() {
  JobTable table(Env::Posix(), TableOptions{1, 1, false});
  char memory[2] = {};
  int number = SlotPool::kNoSlot;
  CHECK_OK(table.Reserve(Home::kBuffer, 0, &number));
  table.Bind(memory, 2, 1);
  auto job = std::make_shared<Job>();
  job->step = 1;
  job->extents = {{0, 1, 0}, {1, 1, 0}};
  job->sources = {memory, memory + 1};
  job->parts = BufferParts(table.reserved().span, job->extents, job->sources);
  CHECK_OK(table.Submit(job, true, 0));
  CHECK_EQ(table.Next(kExternal, kTransfer), job);
  Waiting reserve([&] { CHECK_OK(table.Reserve(Home::kBuffer, kForEver, &number)); });
  table.DoneReading(job, kExternal, 0, 1);
  reserve.Join();
  table.Bind(memory, 2, 1);
  Waiting capture([&] { CHECK_OK(table.TakeParts(memory + 1, 1, kForEver)); });
  table.DoneReading(job, kExternal, 1, 1);
  capture.Join();
}

// The ranks may agree to go on with a step that they hold, so nothing gives it up meanwhile.
void AStepThatIsHeldIsNotSuperseded() {
  JobTable table(Env::Posix(), WithTransfers(2));
  Submitted(&table, 1, false);
  const JobRef held = Submitted(&table, 2, false);
  CHECK(table.Hold(2));
  table.Supersede(2, 3);
  CHECK_EQ(held->superseded_by, -1);
  CHECK(!table.Hold(-1));
  table.Supersede(2, 3);
  CHECK_EQ(held->superseded_by, 3);
}

// A newer step might need the slot of the held one, which might need its thread.
void NoStepBeginsBehindOneThatIsHeld() {
  JobTable table(Env::Posix(), WithTransfers(2));
  JobRef job[4];
  for (int64_t step = 1; step <= 3; ++step) job[step] = Submitted(&table, step, false);
  CHECK(table.Hold(2));
  CHECK_EQ(table.TryNext(kExternal, kTransfer), job[1]);
  CHECK_EQ(table.TryNext(kExternal, kTransfer), nullptr);
  table.Finish(job[1], kExternal);
  Commit(&table, job[1], kPublish);
  CHECK_EQ(table.TryNext(kExternal, kTransfer), nullptr);
  CHECK(!table.Hold(-1));
  for (int64_t step = 2; step <= 3; ++step) CHECK_EQ(table.TryNext(kExternal, kTransfer), job[step]);
}

// As many captures as may be uncommitted are held at once, so memory is found ahead for no more of them.
void MemoryIsFoundAheadForAsManyAsMayBeUncommitted() {
  TableOptions options = WithSlots(4);
  options.in_flight = 4;
  options.uncommitted = 2;
  JobTable table(Env::Posix(), options);
  CHECK(table.AwaitRoomFor(0) && table.AwaitRoomFor(1));
  Waiting third([&] { CHECK(table.AwaitRoomFor(2)); });
  table.Tune(1, 3);
  third.Join();
  Waiting last([&] { CHECK(!table.AwaitRoomFor(3)); });
  table.Stop();
  last.Join();
}

// A lowered number of transfers holds for checkpoints that begin a stage; those that are in it go on.
void ALoweredNumberOfTransfersHoldsForWhatBegins() {
  JobTable table(Env::Posix(), WithTransfers(3));
  JobRef job[5];
  for (int64_t step = 1; step <= 4; ++step) job[step] = Submitted(&table, step, false);
  for (int64_t step = 1; step <= 3; ++step) CHECK_EQ(table.TryNext(kExternal, kTransfer), job[step]);
  CHECK_EQ(table.TryNext(kExternal, kTransfer), nullptr);
  table.Tune(1, 0);
  for (const int64_t step : {3, 1}) {
    table.Finish(job[step], kExternal);
    CHECK_EQ(table.TryNext(kExternal, kTransfer), nullptr);
  }
  table.Finish(job[2], kExternal);
  CHECK_EQ(table.TryNext(kExternal, kTransfer), job[4]);
  table.Finish(job[4], kExternal);
  for (const size_t stage : {kPublish, kCommit}) {  // one at a time, the oldest first
    for (int64_t step = 1; step <= 4; ++step) {
      CHECK_EQ(table.TryNext(kExternal, stage), job[step]);
      CHECK_EQ(table.TryNext(kExternal, stage), nullptr);
      if (stage == kCommit) table.ReleaseSlots(step);
      table.Finish(job[step], kExternal);
    }
  }
}

// With a second transfer a thread of the stage begins the next checkpoint at once.
void ARaisedNumberOfTransfersWakesAThread() {
  JobTable table(Env::Posix(), WithTransfers(2));
  table.Tune(1, 0);
  const JobRef first = Submitted(&table, 1, false);
  const JobRef second = Submitted(&table, 2, false);
  CHECK_EQ(table.Next(kExternal, kTransfer), first);
  Waiting stage([&] { CHECK_EQ(table.Next(kExternal, kTransfer), second); });
  table.Tune(2, 0);
  stage.Join();
}

// Newer checkpoints may wait, at their commit, for a rank that captures nothing more before the oldest one is over.
void TheOldestCheckpointIsCommittedBesideNewerOnes() {
  for (const bool lowered : {false, true}) {
    JobTable table(Env::Posix(), WithTransfers(lowered ? 3 : 2));
    JobRef job[4];
    for (int64_t step = 1; step <= 3; ++step) job[step] = Submitted(&table, step, false);
    CHECK_EQ(table.TryNext(kExternal, kTransfer), job[1]);
    for (int64_t step = 2; step <= 3; ++step) {
      CHECK_EQ(table.TryNext(kExternal, kTransfer), job[step]);
      table.Finish(job[step], kExternal);
      CHECK_EQ(table.TryNext(kExternal, kPublish), job[step]);
      table.Finish(job[step], kExternal);
      CHECK_EQ(table.TryNext(kExternal, kCommit), step == 2 || lowered ? job[step] : nullptr);
    }
    if (lowered) table.Tune(1, 0);
    table.Finish(job[1], kExternal);
    Commit(&table, job[1], kPublish);
    // One place is the second checkpoint's now. The third has its own if there are two.
    CHECK_EQ(table.TryNext(kExternal, kCommit), lowered ? nullptr : job[3]);
  }
}

// A higher bound lets a capture begin that waits; a lower one holds back the next capture alone.
void TheBoundOfUncommittedCheckpointsChanges() {
  for (const Home home : {Home::kSlot, Home::kBuffer, Home::kCaller}) {
    TableOptions options = WithSlots(4);
    options.in_flight = 4;
    options.uncommitted = 4;
    JobTable table(Env::Posix(), options);
    const auto submit = [&](int64_t step, uint64_t timeout_ms) { return Captured(&table, home, step, timeout_ms); };
    for (int64_t step = 1; step <= 3; ++step) CHECK_OK(submit(step, 0));
    table.Tune(1, 2);  // fewer than there are
    CHECK_EQ(table.Room(home), 0u);
    CHECK(submit(4, 0).code() == Code::kTimeout);
    const JobRef first = table.Next(kExternal, kTransfer);
    table.Finish(first, kExternal);
    Commit(&table, first, kPublish);
    CHECK(submit(4, 0).code() == Code::kTimeout);  // two are left
    Waiting capture([&] { CHECK_OK(submit(4, kLong)); });
    table.Tune(1, 3);
    capture.Join();
    CHECK_EQ(table.Room(home), 0u);
    table.Tune(1, 4);
    CHECK_EQ(table.Room(home), 1u);
  }
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::NoMoreAreUncommittedThanTheBound();
  deepfreeze::MemoryIsFoundAheadForAsManyAsMayBeUncommitted();
  deepfreeze::ALevelWaitsForThoseOfItsRow();
  for (int n = 0; n < 20; ++n) deepfreeze::ACaptureIsWokenByThePartThatIsRead();
  deepfreeze::AStepThatIsHeldIsNotSuperseded();
  deepfreeze::NoStepBeginsBehindOneThatIsHeld();
  deepfreeze::ALoweredNumberOfTransfersHoldsForWhatBegins();
  for (int n = 0; n < 20; ++n) deepfreeze::ARaisedNumberOfTransfersWakesAThread();
  deepfreeze::TheOldestCheckpointIsCommittedBesideNewerOnes();
  for (int n = 0; n < 5; ++n) deepfreeze::TheBoundOfUncommittedCheckpointsChanges();
  deepfreeze::AFaultOfTheEngineFailsTheStep();
  deepfreeze::AFaultDoesNotHideWhyAStepFailed();
  deepfreeze::AFaultOfTheEngineEndsATest();
  deepfreeze::TheCpuTimesOfAllCheckpointsSumUpToWhatTheThreadsHaveUsed();
  deepfreeze::WhatTheLocalWriterReadsIsNotReleased();
  deepfreeze::ALocalTierThatIsGivenUpTakesNoCaptures();
  deepfreeze::SlotsTakenByLaterStepsAreNotWaitedFor();
  for (int n = 0; n < 200; ++n) deepfreeze::ASlotThatIsLostToALaterCaptureIsNotWaitedFor();
}
