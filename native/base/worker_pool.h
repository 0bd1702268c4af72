// A fixed number of threads that work through batches of numbered items. One thread more does items of urgent batches
// only: a disk or file system that hangs may keep all other threads in calls that do not return, and urgent items go
// on.
//
// Run may be called from several threads at once, each with a batch of its own. The destructor joins the threads; no
// Run may be under way then.
#ifndef DEEPFREEZE_BASE_WORKER_POOL_H_
#define DEEPFREEZE_BASE_WORKER_POOL_H_

#include <cstddef>
#include <functional>
#include <list>
#include <thread>
#include <vector>

#include "base/mutex.h"
#include "base/thread_clocks.h"

namespace deepfreeze {

class WorkerPool {
 public:
  // Does one item. Called from the pool's threads, several at once; items are begun in rising order. worker is the
  // number of the calling thread: below threads(), in urgent batches below workers(). False: no more items of this
  // batch are begun. Must not throw.
  using Work = std::function<bool(size_t worker, size_t item)>;

  // Starts the threads; nice: see BecomeBackgroundThread. clocks: counts their CPU time as df-writer's; may be null,
  // and must outlive the pool. Throws std::system_error if the system gives no threads.
  WorkerPool(size_t threads, int nice, ThreadClocks* clocks = nullptr);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // The threads that do items of every batch, and those with the thread that does items of urgent batches only.
  size_t threads() const { return threads_.size() - 1; }
  size_t workers() const { return threads_.size(); }

  // How many of threads() may be busy at a time, from 1 to threads(), which is the limit at first. The thread for
  // urgent batches is not counted. Threads beyond a lowered limit finish their items and then sleep; a raised limit
  // wakes as many threads as it adds. SetLimit never waits for a thread.
  void SetLimit(size_t limit);
  size_t limit() const;

  // Calls work for all items in [0, n) and returns when they are done; if work returns false for an item, when those
  // are done that were begun by then. At most `width` (> 0) items of this batch run at a time. Items of urgent batches
  // are taken first. The other batches share the threads as evenly as they can: a thread takes an item of the batch of
  // which the fewest items run, of the oldest one among equals. A thread finishes the item that it has before it takes
  // another.
  void Run(size_t n, size_t width, bool urgent, const Work& work);

 private:
  struct Batch {
    const Work* work;
    size_t size;
    size_t width;
    bool urgent;
    size_t next = 0;
    size_t running = 0;
  };

  // only_urgent: of the thread that is kept for urgent batches.
  void Loop(size_t worker, bool only_urgent);
  // The batch whose next item the calling thread is to begin now; null if none may.
  Batch* Ready(bool only_urgent) const REQUIRES(mutex_);
  void Stop();

  mutable Mutex mutex_;  // also guards what is in the batches
  CondVar work_ready_;
  CondVar urgent_work_ready_;
  CondVar batch_done_;
  std::list<Batch*> batches_ GUARDED_BY(mutex_);  // with items left, urgent ones first
  bool stopping_ GUARDED_BY(mutex_) = false;
  size_t limit_ GUARDED_BY(mutex_);
  size_t busy_ GUARDED_BY(mutex_) = 0;  // how many of threads() do an item
  const int nice_;
  ThreadClocks* const clocks_;
  std::vector<std::thread> threads_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_WORKER_POOL_H_
