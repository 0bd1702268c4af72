#include "base/idle_cores.h"

#include "testing/check.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kSecond = 1000000;

void WhatIsNotUsedOfTheShareIsIdle() {
  IdleCores cores(2.0, 5 * kSecond, 100);
  CHECK_EQ(cores.Average(6 * kSecond, 100 + kSecond / 2), 1.5);
  CHECK_EQ(cores.Average(8 * kSecond, 100 + kSecond / 2 + 3 * kSecond), 0.5);  // since the call before alone
  CHECK_EQ(cores.Average(9 * kSecond, 100 + 20 * kSecond), 0.0);               // more than its share
}

void AShortTimeSaysNothing() {
  IdleCores cores(4.0, 0, 0);
  CHECK_EQ(cores.Average(IdleCores::kShortestUs - 1, 0), 0.0);  // nothing is known yet
  CHECK_EQ(cores.Average(IdleCores::kShortestUs, IdleCores::kShortestUs), 3.0);
  CHECK_EQ(cores.Average(IdleCores::kShortestUs + 1, 9 * kSecond), 3.0);
  CHECK_EQ(cores.Average(kSecond, 0), 3.0);  // of a thread that has read its clock before another one
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::WhatIsNotUsedOfTheShareIsIdle();
  deepfreeze::AShortTimeSaysNothing();
}
