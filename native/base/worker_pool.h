// A fixed number of threads that work through batches of numbered items.
//
// Run may be called from several threads at once; the destructor must not overlap a Run.
#ifndef DEEPFREEZE_BASE_WORKER_POOL_H_
#define DEEPFREEZE_BASE_WORKER_POOL_H_

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

namespace deepfreeze {

class WorkerPool {
 public:
  // Called for items in rising order, several at once; worker < threads() names the thread. False: begin no more items.
  using Work = std::function<bool(size_t worker, size_t item)>;

  // nice: see BecomeBackgroundThread.
  WorkerPool(size_t threads, int nice);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  size_t threads() const { return threads_.size(); }

  // Blocks until all items in [0, n) are done, or those begun before some work returned false. At most `width` (> 0) of
  // them run at a time. Items of urgent batches go before items of others: a thread takes one item at a time, so a long
  // batch delays an urgent one by one item.
  void Run(size_t n, size_t width, bool urgent, const Work& work);

 private:
  struct Batch {
    const Work* work;
    size_t size;
    size_t width;
    size_t next = 0;
    size_t running = 0;
  };

  void Loop(size_t worker);
  // The first batch whose next item may begin, or null.
  Batch* Ready() const;
  void Stop();

  std::mutex mutex_;
  std::condition_variable work_ready_;
  std::condition_variable batch_done_;
  std::list<Batch*> batches_;  // with items left, urgent ones first
  bool stopping_ = false;
  const int nice_;
  std::vector<std::thread> threads_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_WORKER_POOL_H_
