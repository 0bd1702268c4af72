#include "engine/stage.h"

#include <mutex>

namespace deepfreeze {

Status ForEachExtent(const StageContext& context, size_t n, bool urgent,
                     const std::function<Status(size_t worker, size_t i)>& work) {
  std::mutex mutex;
  Status first;
  context.pool->Run(n, urgent, [&](size_t worker, size_t i) {
    Status status = context.table->stopping() ? Status(Code::kClosed, "the engine is shutting down")
                                              : Contained([&] { return work(worker, i); });
    if (status.ok()) return true;
    std::lock_guard<std::mutex> lock(mutex);
    if (first.ok()) first = std::move(status);
    return false;
  });
  return first;
}

}  // namespace deepfreeze
