// Batches of a WorkerPool: every item is done once, no more at a time than the batch's width, whatever else runs beside
// it; urgent items go before others; the first false ends a batch; a limit that changes holds for the items that begin.
#include "base/worker_pool.h"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <random>
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

// Items that have begun go on under a lowered limit; then no more run at a time than it says. A raised limit has
// further items begin while those before it still run.
void TestTheLimitHoldsForItemsThatBegin() {
  constexpr size_t kMany = 200;
  WorkerPool pool(kThreads, 0);
  CHECK_EQ(pool.limit(), kThreads);
  std::atomic<size_t> most{kThreads};
  std::atomic<size_t> running{0};
  std::atomic<size_t> begun{0};
  std::atomic<size_t> may_end{0};  // the items below this number
  std::thread batch([&] {
    pool.Run(kMany, kThreads, false, [&](size_t, size_t item) {
      CHECK(running.fetch_add(1) < most);
      ++begun;
      while (item >= may_end) Pause();
      --running;
      return true;
    });
  });
  const auto await_begun = [&](size_t n) {
    while (begun < n) Pause();
    CHECK_EQ(begun.load(), n);
  };
  await_begun(kThreads);
  pool.SetLimit(3);
  most = 3;
  may_end = kThreads;
  await_begun(kThreads + 3);
  most = 5;
  pool.SetLimit(5);  // two threads sleep no longer, and the three others still have their items
  await_begun(kThreads + 5);
  pool.SetLimit(1);
  most = 1;
  may_end = kThreads + 5;
  await_begun(kThreads + 6);
  most = kThreads;
  pool.SetLimit(kThreads);
  may_end = kMany;
  batch.join();
  CHECK_EQ(begun.load(), kMany);
}

// The limit is of the threads for every batch: the one for urgent batches is beside them.
void TestUrgentItemsGoOnAtTheLimit() {
  WorkerPool pool(kThreads, 0);
  pool.SetLimit(1);
  std::atomic<bool> hangs{false};
  std::atomic<bool> over{false};
  std::thread first([&] {
    pool.Run(2, 2, false, [&](size_t, size_t) {
      CHECK(!hangs.exchange(true));  // the other item never begins
      while (!over) Pause();
      return false;
    });
  });
  while (!hangs) Pause();
  pool.Run(20, kWorkers, true, [&](size_t worker, size_t) {
    CHECK_EQ(worker, kThreads);
    return true;
  });
  over = true;
  first.join();
}

// Whenever the limit changes, every item is done.
void TestALimitThatChangesLosesNoItem(unsigned seed) {
  std::mt19937 random(seed);
  WorkerPool pool(kThreads, 0);
  std::atomic<size_t> left{6};
  std::vector<std::thread> callers;
  for (const size_t width : {1, 2, 8}) {
    for (const bool urgent : {false, true}) {
      callers.emplace_back([&pool, &left, width, urgent] {
        for (size_t n = 0; n < 60; n += 7) RunCounted(&pool, n, width, urgent);
        --left;
      });
    }
  }
  while (left > 0) {
    pool.SetLimit(1 + random() % kThreads);
    Pause();
  }
  for (std::thread& caller : callers) caller.join();
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::TestBatchesSideBySide();
  deepfreeze::TestUrgentItemsGoFirst();
  deepfreeze::TestUrgentItemsGoOnWhereOthersHang();
  deepfreeze::TestFalseEndsABatch();
  deepfreeze::TestTheLimitHoldsForItemsThatBegin();
  deepfreeze::TestUrgentItemsGoOnAtTheLimit();
  const unsigned seed = std::random_device()();
  std::printf("seed %u\n", seed);
  for (unsigned n = 0; n < 10; ++n) deepfreeze::TestALimitThatChangesLosesNoItem(seed + n);
}
