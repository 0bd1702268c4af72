#include "base/token_bucket.h"

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "testing/check.h"

namespace deepfreeze {
namespace {

// By a clock that the test moves: in no span of time are more bytes written than the span and one second allow, and a
// writer that always has bytes waits no longer than they take.
void NoSpanHasMoreThanItsBytesAndThoseOfASecond() {
  std::mt19937_64 random(7);  // NOLINT(bugprone-random-generator-seed): each run tries the same
  for (const uint64_t rate : {uint64_t{1} << 20, uint64_t{12345678}, uint64_t{3} << 30}) {
    for (const bool pauses : {false, true}) {
      TokenBucket bucket(rate);
      uint64_t now = 5;  // microseconds
      std::vector<std::pair<uint64_t, uint64_t>> writes;
      uint64_t total = 0;
      for (int i = 0; i < 300; ++i) {
        const uint64_t n = 1 + random() % (rate / 2);
        now += bucket.Take(n, now);
        writes.emplace_back(now, n);
        total += n;
        if (pauses) now += random() % 3000000;
      }
      for (size_t from = 0; from < writes.size(); ++from) {
        uint64_t bytes = 0;
        for (size_t to = from; to < writes.size(); ++to) {
          bytes += writes[to].second;
          const double seconds = static_cast<double>(writes[to].first - writes[from].first) * 1e-6;
          CHECK(static_cast<double>(bytes) <= static_cast<double>(rate) * (seconds + 1));
        }
      }
      const double taken = static_cast<double>(writes.back().first) * 1e-6;
      if (!pauses) CHECK(taken <= static_cast<double>(total) / static_cast<double>(rate));
    }
  }
}

// One write of more than a second's bytes waits for those that it has too many.
void ALargeWriteWaitsForItsOwnBytes() {
  TokenBucket bucket(1000);
  CHECK_EQ(bucket.Take(1000, 0), 0U);
  CHECK_EQ(bucket.Take(2500, 0), 2500000U);
  CHECK_EQ(bucket.Take(1, 60000000), 0U);    // long after
  CHECK_EQ(bucket.Take(999, 60000000), 0U);  // the rest of that second
  CHECK_EQ(bucket.Take(1, 60000000), 1000U);
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::NoSpanHasMoreThanItsBytesAndThoseOfASecond();
  deepfreeze::ALargeWriteWaitsForItsOwnBytes();
}
