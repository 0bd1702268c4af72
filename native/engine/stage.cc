#include "engine/stage.h"

#include <algorithm>

namespace deepfreeze {

Status GivenUp(const JobRef& job) {
  const int64_t by = job->superseded_by;
  return by < 0 ? Status() : Status(Code::kSuperseded, SupersededText(by));
}

Status Heed(const JobRef& job, Verdict verdict, const std::string& why) {
  if (verdict == Verdict::kFailed) return Status(Code::kIncomplete, why);
  if (verdict != Verdict::kSuperseded) return {};
  int64_t by = job->step + 1;
  (void)ParseSuperseded(why, &by);
  job->superseded_by = by;
  return GivenUp(job);
}

Status FailStep(const StageContext& context, const JobRef& job, Status why) noexcept {
  const bool decides = context.options.identity.rank == 0;
  Status known = Contained([&]() -> Status {
    DF_RETURN_IF_ERROR(GivenUp(job));
    Verdict verdict = Verdict::kPending;
    std::string said;
    if (decides || !context.meeting->Look(job->step, &verdict, &said).ok()) return {};
    return Heed(job, verdict, said);
  });
  if (known.code() == Code::kIncomplete) return why;  // the others know, and have their answer
  if (known.code() != Code::kSuperseded) {
    BestEffort([&] { (void)context.meeting->Failed(job->step, why.message()).ok(); });
    return why;
  }
  if (decides) {
    BestEffort([&] { (void)context.meeting->Superseded(job->step, job->superseded_by).ok(); });
    context.upkeep->AskTidy();
  }
  return known;
}

size_t Copiers(const WorkerPool& pool) { return std::max<size_t>(2, pool.limit() / 4); }

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
