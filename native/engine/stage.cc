#include "engine/stage.h"

#include <algorithm>

namespace deepfreeze {

Status GivenUp(const JobRef& job) {
  const int64_t by = job->superseded_by;
  return by < 0 ? Status() : Status(Code::kSuperseded, SupersededText(by));
}

Status GiveUp(const JobRef& job, const std::string& why) {
  int64_t by = job->step + 1;
  (void)ParseSuperseded(why, &by);
  job->superseded_by = by;
  return GivenUp(job);
}

Status FailStep(const StageContext& context, const JobRef& job, Status why) noexcept {
  Status given_up = Contained([&] { return GivenUp(job); });
  if (given_up.ok()) {
    BestEffort([&] { (void)context.meeting->Failed(job->step, why.message()).ok(); });
    return why;
  }
  if (context.options.identity.rank == 0) {
    BestEffort([&] { (void)context.meeting->Superseded(job->step, job->superseded_by).ok(); });
    BestEffort([&] { context.upkeep->AskTidy(); });
  }
  return given_up;
}

size_t Copiers(const Options& options) { return std::max<size_t>(2, options.writers / 4); }

Status ForEachExtent(const StageContext& context, size_t n, size_t width, bool urgent,
                     const std::function<Status(size_t worker, size_t i)>& work) {
  Mutex mutex;
  Status first;
  context.pool->Run(n, width, urgent, [&](size_t worker, size_t i) {
    Status status = Contained([&] {
      return context.table->stopping() ? Status(Code::kClosed, "the engine is shutting down") : work(worker, i);
    });
    if (status.ok()) return true;
    const MutexLock lock(&mutex);
    if (first.ok()) first = std::move(status);
    return false;
  });
  return first;
}

}  // namespace deepfreeze
