#include "base/idle_cores.h"

#include <sched.h>

#include <thread>

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

void RanksThatAreBoundToCoresOfTheirOwnHaveAllOfThem() {
  CHECK_EQ(CoresOfEach(CoreCount{8, 64}, 8), 8.0);
  CHECK_EQ(CoresOfEach(CoreCount{8, 64}, 2), 8.0);  // the other cores are nobody's, or another job's
  CHECK_EQ(CoresOfEach(CoreCount{8, 64}, 1), 8.0);
}

void RanksThatAreBoundToTheSameCoresShareThem() {
  CHECK_EQ(CoresOfEach(CoreCount{64, 64}, 8), 8.0);
  CHECK_EQ(CoresOfEach(CoreCount{64, 64}, 1), 64.0);
  CHECK_EQ(CoresOfEach(CoreCount{64, 64}, 0), 64.0);  // a rank that does not know the others
  CHECK_EQ(CoresOfEach(CoreCount{32, 64}, 8), 8.0);   // four to each of two sockets
  CHECK_EQ(CoresOfEach(CoreCount{2, 2}, 4), 0.5);
}

// As a batch system binds a rank: the cores of others are not counted.
void OnlyCoresThatAThreadIsBoundToAreItsOwn() {
  Env* env = Env::Posix();
  const CoreCount before = env->Cores();
  CHECK(before.bound >= 1 && before.bound <= before.online);
  CoreCount bound;
  CoreCount inherited;
  std::thread([&] {
    cpu_set_t all;
    CHECK_EQ(::sched_getaffinity(0, sizeof(all), &all), 0);
    size_t core = 0;
    while (!CPU_ISSET(core, &all)) ++core;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    CHECK_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
    bound = env->Cores();
    std::thread([&] { inherited = env->Cores(); }).join();
  }).join();
  CHECK_EQ(bound.bound, 1U);
  CHECK_EQ(bound.online, before.online);
  CHECK_EQ(inherited.bound, 1U);
  CHECK_EQ(env->Cores().bound, before.bound);
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::WhatIsNotUsedOfTheShareIsIdle();
  deepfreeze::AShortTimeSaysNothing();
  deepfreeze::RanksThatAreBoundToCoresOfTheirOwnHaveAllOfThem();
  deepfreeze::RanksThatAreBoundToTheSameCoresShareThem();
  deepfreeze::OnlyCoresThatAThreadIsBoundToAreItsOwn();
}
