#include "engine/stage.h"

#include <algorithm>

namespace deepfreeze {

Status FailStep(const StageContext& context, const JobRef& job, Status why) noexcept {
  BestEffort([&] { (void)context.meeting->Failed(job->step, why.message()).ok(); });
  return why;
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
