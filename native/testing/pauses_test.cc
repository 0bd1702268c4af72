#include "engine/pauses.h"

#include <set>
#include <vector>

#include "testing/check.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kMs = 1000;
constexpr uint64_t kSecond = 1000000;

// One wait for something that is there `after_us` after the wait began. Returns when each look was made.
std::vector<uint64_t> Wait(Pauses* pauses, uint64_t after_us) {
  const uint64_t begun_us = 12345678;
  std::vector<uint64_t> looks;
  pauses->Begin(begun_us);
  for (uint64_t waited_us = 0; looks.empty() || looks.back() < after_us; looks.push_back(waited_us)) {
    const uint64_t pause_us = pauses->Next(begun_us + waited_us);
    CHECK(pause_us <= Pauses::kLongestUs);
    waited_us += pause_us;
  }
  pauses->Ended(begun_us + looks.back());
  pauses->Ended(begun_us + 100 * looks.back());  // counts for nothing
  return looks;
}

void TheFirstWaitBeginsWithShortPausesThatGrow() {
  Pauses pauses(0);
  const std::vector<uint64_t> looks = Wait(&pauses, 100 * kSecond);
  CHECK(looks[0] == 500 && looks[1] == 1125 && looks[2] == 1906);
  CHECK(looks.size() < 90);  // after 10 s there is one each 2 s
  CHECK_EQ(looks.back() - looks[looks.size() - 2], Pauses::kLongestUs);
}

void ARankBeginsToLookShortlyBeforeTheUsualTime() {
  Pauses pauses(0);
  for (int i = 0; i < 2; ++i) Wait(&pauses, 100 * kMs);
  const std::vector<uint64_t> looks = Wait(&pauses, 100 * kMs);
  CHECK(looks.front() >= 80 * kMs && looks.front() < 130 * kMs && looks.size() <= 6);
}

// However long the waits are, there are about as many looks, and what is there is seen soon.
void TheNumberOfLooksDoesNotGrowWithTheTime() {
  for (const uint64_t usual_us : {2 * kMs, 50 * kMs, 800 * kMs}) {
    Pauses pauses(7);
    for (int i = 0; i < 5; ++i) Wait(&pauses, usual_us);
    for (int i = 0; i < 20; ++i) {
      const std::vector<uint64_t> looks = Wait(&pauses, usual_us);
      CHECK(looks.size() <= 10 && looks.back() < 2 * usual_us);
    }
  }
}

void NoPauseIsLongerThanTwoSeconds() {
  Pauses pauses(0);
  for (int i = 0; i < 3; ++i) Wait(&pauses, 60 * kSecond);  // CHECKs each pause
  const std::vector<uint64_t> looks = Wait(&pauses, kSecond);
  CHECK_EQ(looks.front(), Pauses::kLongestUs);
}

void OneSlowWaitDoesNotDelayTheNextOnes() {
  Pauses pauses(0);
  for (const uint64_t us : {2 * kMs, 2 * kMs, 500 * kMs}) Wait(&pauses, us);
  CHECK(Wait(&pauses, 2 * kMs).back() < 5 * kMs);
}

void WaitsThatBecomeShorterAreFollowed() {
  Pauses pauses(3);
  for (int i = 0; i < 3; ++i) Wait(&pauses, kSecond);
  for (int i = 0; i < 20; ++i) Wait(&pauses, kMs);
  CHECK(Wait(&pauses, kMs).back() < 4 * kMs);
}

void RanksLookAtDifferentTimes() {
  std::set<uint64_t> firsts;
  for (uint32_t rank = 0; rank < 1024; ++rank) {
    Pauses pauses(rank);
    for (int i = 0; i < 2; ++i) {
      pauses.Begin(0);
      (void)pauses.Next(0);
      pauses.Ended(kSecond);
    }
    pauses.Begin(0);
    const uint64_t first_us = pauses.Next(0);
    CHECK(first_us >= 600 * kMs && first_us <= 800 * kMs);
    firsts.insert(first_us / kMs);
  }
  CHECK(firsts.size() > 190);  // of 200 ms
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::TheFirstWaitBeginsWithShortPausesThatGrow();
  deepfreeze::ARankBeginsToLookShortlyBeforeTheUsualTime();
  deepfreeze::TheNumberOfLooksDoesNotGrowWithTheTime();
  deepfreeze::NoPauseIsLongerThanTwoSeconds();
  deepfreeze::OneSlowWaitDoesNotDelayTheNextOnes();
  deepfreeze::WaitsThatBecomeShorterAreFollowed();
  deepfreeze::RanksLookAtDifferentTimes();
}
