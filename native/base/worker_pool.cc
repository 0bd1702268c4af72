#include "base/worker_pool.h"

#include <algorithm>

#include "base/thread.h"

namespace deepfreeze {

WorkerPool::WorkerPool(size_t threads, int nice, ThreadClocks* clocks) : limit_(threads), nice_(nice), clocks_(clocks) {
  threads_.reserve(threads + 1);
  try {
    for (size_t i = 0; i <= threads; ++i) threads_.emplace_back([this, i, threads] { Loop(i, i == threads); });
  } catch (...) {  // the system refuses another thread
    Stop();
    throw;
  }
}

WorkerPool::~WorkerPool() { Stop(); }

void WorkerPool::Stop() {
  {
    const MutexLock lock(&mutex_);
    stopping_ = true;
  }
  work_ready_.NotifyAll();
  urgent_work_ready_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::Run(size_t n, size_t width, bool urgent, const Work& work) {
  if (n == 0) return;
  Batch batch{&work, n, width, urgent};
  const MutexLock lock(&mutex_);
  if (urgent) {
    batches_.push_front(&batch);
  } else {
    batches_.push_back(&batch);
  }
  // Wakes no more threads than there is work for, because each may take a core from the training; for an urgent batch
  // one more, because the others may hang.
  for (size_t i = std::min({n, width, limit_}); i > 0; --i) work_ready_.NotifyOne();
  if (urgent) urgent_work_ready_.NotifyOne();
  while (batch.next < batch.size || batch.running > 0) batch_done_.Wait(&mutex_);
}

void WorkerPool::SetLimit(size_t limit) {
  const MutexLock lock(&mutex_);
  // A thread that ends an item looks for another one itself, so only what is added needs a thread that sleeps.
  for (size_t added = limit_; added < limit; ++added) work_ready_.NotifyOne();
  limit_ = limit;
}

size_t WorkerPool::limit() const {
  const MutexLock lock(&mutex_);
  return limit_;
}

WorkerPool::Batch* WorkerPool::Ready(bool only_urgent) const {
  if (!only_urgent && busy_ >= limit_) return nullptr;
  Batch* ready = nullptr;
  for (Batch* batch : batches_) {
    if ((only_urgent && !batch->urgent) || batch->running >= batch->width) continue;
    if (batch->urgent) return batch;
    if (ready == nullptr || batch->running < ready->running) ready = batch;
  }
  return ready;
}

void WorkerPool::Loop(size_t worker, bool only_urgent) {
  BecomeBackgroundThread("df-writer", nice_);
  const ThreadClocks::Running clock(clocks_, "df-writer");
  CondVar* const ready = only_urgent ? &urgent_work_ready_ : &work_ready_;
  mutex_.Lock();
  for (;;) {
    Batch* batch = nullptr;
    while ((batch = Ready(only_urgent)) == nullptr && !stopping_) ready->Wait(&mutex_);
    if (batch == nullptr) break;
    const size_t item = batch->next++;
    ++batch->running;
    if (!only_urgent) ++busy_;
    if (batch->next == batch->size) batches_.remove(batch);
    mutex_.Unlock();
    const bool go_on = (*batch->work)(worker, item);
    mutex_.Lock();
    if (!only_urgent) --busy_;
    if (!go_on && batch->next < batch->size) {
      batch->next = batch->size;
      batches_.remove(batch);
    }
    if (--batch->running == 0 && batch->next == batch->size) {
      batch_done_.NotifyAll();
    } else if (batch->next < batch->size && Ready(only_urgent) != batch) {
      work_ready_.NotifyOne();  // this thread goes on with another batch, so another thread may join this one
    }
  }
  mutex_.Unlock();
}

}  // namespace deepfreeze
