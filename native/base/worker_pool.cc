#include "base/worker_pool.h"

#include "base/thread.h"

namespace deepfreeze {

WorkerPool::WorkerPool(size_t threads, int nice) : nice_(nice) {
  threads_.reserve(threads);
  try {
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this, i] { Loop(i); });
  } catch (...) {  // the system gives no more threads
    Stop();
    throw;
  }
}

WorkerPool::~WorkerPool() { Stop(); }

void WorkerPool::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  work_ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::Run(size_t n, bool urgent, const Work& work) {
  if (n == 0) return;
  Batch batch{&work, n};
  std::unique_lock<std::mutex> lock(mutex_);
  if (urgent) {
    batches_.push_front(&batch);
  } else {
    batches_.push_back(&batch);
  }
  work_ready_.notify_all();
  batch_done_.wait(lock, [&] { return batch.next == batch.size && batch.running == 0; });
}

void WorkerPool::Loop(size_t worker) {
  BecomeBackgroundThread("df-writer", nice_);
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    work_ready_.wait(lock, [this] { return stopping_ || !batches_.empty(); });
    if (batches_.empty()) return;
    Batch* batch = batches_.front();
    const size_t item = batch->next++;
    if (batch->next == batch->size) batches_.pop_front();
    ++batch->running;
    lock.unlock();
    const bool go_on = (*batch->work)(worker, item);
    lock.lock();
    if (!go_on && batch->next < batch->size) {
      batch->next = batch->size;
      batches_.remove(batch);
    }
    if (--batch->running == 0 && batch->next == batch->size) batch_done_.notify_all();
  }
}

}  // namespace deepfreeze
