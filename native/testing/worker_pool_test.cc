// Batches of a WorkerPool: every item is done once, no more at a time than the batch's width, whatever else runs beside
// it; urgent items go before others; the first false ends a batch.
#include "base/worker_pool.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "testing/check.h"

namespace deepfreeze {
namespace {

constexpr size_t kThreads = 8;
constexpr size_t kWorkers = kThreads + 1;

void Pause() { std::this_thread::sleep_for(std::chrono::microseconds(200)); }

// Runs a batch and checks how many of its items ran at a time, and how often each did.
void RunCounted(WorkerPool* pool, size_t n, size_t width, bool urgent) {
  std::atomic<size_t> running{0};
  std::atomic<size_t> done{0};
  std::vector<std::atomic<int>> times(n);
  pool->Run(n, width, urgent, [&](size_t worker, size_t item) {
    CHECK(worker < (urgent ? kWorkers : kThreads));
    CHECK(running.fetch_add(1) < width);
    times[item].fetch_add(1);
    Pause();
    running.fetch_sub(1);
    done.fetch_add(1);
    return true;
  });
  CHECK_EQ(done.load(), n);
  for (const auto& count : times) CHECK_EQ(count.load(), 1);
}

void TestBatchesSideBySide() {
  WorkerPool pool(kThreads, 0);
  std::vector<std::thread> callers;
  for (const size_t width : {1, 2, 8}) {
    for (const bool urgent : {false, true}) {
      callers.emplace_back([&pool, width, urgent] {
        for (size_t n = 0; n < 60; n += 7) RunCounted(&pool, n, width, urgent);
      });
    }
  }
  for (std::thread& caller : callers) caller.join();
}

// The items of a batch follow each other until an urgent batch comes, which waits for none of them.
void TestUrgentItemsGoFirst() {
  constexpr size_t kMany = 100000;
  WorkerPool pool(1, 0);
  std::atomic<size_t> begun{0};
  std::atomic<bool> over{false};
  std::thread first([&] {
    pool.Run(kMany, 1, false, [&](size_t, size_t) {
      ++begun;
      Pause();
      return !over;
    });
  });
  while (begun == 0) Pause();
  pool.Run(1, 1, true, [&](size_t, size_t) { return over = true; });
  first.join();
  CHECK(begun < kMany);
}

// All threads are in calls that do not return, as those of a store that hangs.
void TestUrgentItemsGoOnWhereOthersHang() {
  for (const size_t threads : {size_t{1}, kThreads}) {
    WorkerPool pool(threads, 0);
    std::atomic<size_t> hanging{0};
    std::atomic<bool> over{false};
    std::thread first([&] {
      pool.Run(2 * threads, threads, false, [&](size_t, size_t) {
        ++hanging;
        while (!over) Pause();
        return false;
      });
    });
    while (hanging < threads) Pause();
    for (int i = 0; i < 20; ++i) RunCounted(&pool, 20, 4, true);
    CHECK_EQ(hanging.load(), threads);
    over = true;
    first.join();
  }
}

void TestFalseEndsABatch() {
  WorkerPool pool(kThreads, 0);
  std::atomic<size_t> begun{0};
  pool.Run(1000, 2, false, [&](size_t, size_t) {
    begun.fetch_add(1);
    return false;
  });
  CHECK(begun.load() <= 2);
  RunCounted(&pool, 20, kThreads, false);  // the pool goes on
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::TestBatchesSideBySide();
  deepfreeze::TestUrgentItemsGoFirst();
  deepfreeze::TestUrgentItemsGoOnWhereOthersHang();
  deepfreeze::TestFalseEndsABatch();
}
