#include "base/worker_pool.h"

#include <algorithm>

#include "base/thread.h"

namespace deepfreeze {

WorkerPool::WorkerPool(size_t threads, int nice) : nice_(nice) {
  threads_.reserve(threads);
  try {
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this, i] { Loop(i); });
  } catch (...) {  // the system refuses another thread
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

void WorkerPool::Run(size_t n, size_t width, bool urgent, const Work& work) {
  if (n == 0) return;
  Batch batch{&work, n, width};
  std::unique_lock<std::mutex> lock(mutex_);
  if (urgent) {
    batches_.push_front(&batch);
  } else {
    batches_.push_back(&batch);
  }
  // Wakes no more threads than there is work for: each thread that wakes may take a core from the training.
  for (size_t i = std::min({n, width, threads_.size()}); i > 0; --i) work_ready_.notify_one();
  batch_done_.wait(lock, [&] { return batch.next == batch.size && batch.running == 0; });
}

WorkerPool::Batch* WorkerPool::Ready() const {
  for (Batch* batch : batches_) {
    if (batch->running < batch->width) return batch;
  }
  return nullptr;
}

void WorkerPool::Loop(size_t worker) {
  BecomeBackgroundThread("df-writer", nice_);
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    Batch* batch = nullptr;
    work_ready_.wait(lock, [&] { return (batch = Ready()) != nullptr || stopping_; });
    if (batch == nullptr) return;
    const size_t item = batch->next++;
    ++batch->running;
    if (batch->next == batch->size) batches_.remove(batch);
    lock.unlock();
    const bool go_on = (*batch->work)(worker, item);
    lock.lock();
    if (!go_on && batch->next < batch->size) {
      batch->next = batch->size;
      batches_.remove(batch);
    }
    if (--batch->running == 0 && batch->next == batch->size) {
      batch_done_.notify_all();
    } else if (batch->next < batch->size && Ready() != batch) {
      work_ready_.notify_one();  // this thread goes on with another batch, so another thread may join this one
    }
  }
}

}  // namespace deepfreeze
