// The engine under load, in one process: several ranks, many steps, waits and polls from other threads, closing at any
// time. Built with the sanitizers, this is where races and leaks show. Whatever does not depend on directories is
// tested on a store without them too.
#include "engine/engine.h"

#include <atomic>
#include <functional>
#include <thread>

#include "deepfreeze/deepfreeze.h"
#include "format/names.h"
#include "testing/check.h"
#include "testing/fault_env.h"
#include "testing/faults_of.h"
#include "testing/place.h"
#include "testing/values.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kSize = 300 * 4096 + 17;

Options ForRank(uint32_t rank, uint32_t world, const std::string& local) {
  Options options;
  options.identity.rank = rank;
  options.identity.world = world;
  options.identity.file_size = kSize;
  options.in_flight = 2;
  options.slots = 2;
  options.writers = 2;
  options.chunk_bytes = uint64_t{16} * 4096;
  options.commit_timeout_ms = kLong;
  options.local_dir = local;
  return options;
}

// The regions of a rank's share of the file: the whole file or half of it, in two regions.
std::vector<Region> Share(const std::string& data, uint32_t rank, uint32_t world) {
  const uint64_t share = kSize / 4096 / world * 4096;
  const uint64_t begin = share * rank;
  const uint64_t end = rank + 1 == world ? kSize : begin + share;
  return {{data.data() + begin, 1000, begin}, {data.data() + begin + 1000, end - begin - 1000, begin + 1000}};
}

void ManyStepsOfTwoRanks(Place* run) {
  TemporaryDir local;
  constexpr int64_t kSteps = 25;
  std::vector<std::string> data;
  for (int64_t step = 0; step < kSteps; ++step) data.emplace_back(kSize, static_cast<char>('a' + step));
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < 2; ++rank) {
    ranks.emplace_back([&, rank] {
      Engine engine(ForRank(rank, 2, rank == 0 ? local.path() : ""), Env::Posix(), run->Open());
      std::atomic<bool> over{false};
      std::thread poller([&] {
        while (!over) {
          for (const Report& report : engine.Poll(3)) CHECK(report.code == Code::kOk);
          CHECK_OK(engine.Drain(kLong));
        }
      });
      for (int64_t step = 0; step < kSteps; ++step) {
        CHECK_OK(engine.Submit(step, Share(data[size_t(step)], rank, 2), "p", kLong));
        if (step % 5 == 0) CHECK_OK(engine.Wait(step, step % 2 == 0 ? DF_LOCAL : DF_EXTERNAL, kLong));
      }
      CHECK_OK(engine.Drain(kLong));
      over = true;
      poller.join();
    });
  }
  for (std::thread& rank : ranks) rank.join();
  CHECK_EQ(run->Model(kSteps - 1), data.back());
}

void CloseAtAnyTime(Place* run) {
  const std::string data(kSize, 'z');
  for (uint64_t us = 0; us < 6000; us += 400) {
    TemporaryDir local;
    Options options = ForRank(0, 1, local.path());
    options.identity.attempt[0] = static_cast<uint8_t>(us / 400);
    Engine engine(options, Env::Posix(), run->Open());
    std::thread blocked([&] {
      for (int64_t step = 1; engine.Submit(step, Share(data, 0, 1), "", kLong).ok(); ++step) {
      }
    });
    std::this_thread::sleep_for(std::chrono::microseconds(us));
    CHECK(engine.Wait(99999999, DF_LOCAL, 0).code() == Code::kInvalid);
    std::string where;
    CHECK(engine.Stop(kLong, &where));  // what closing does first; the submit must come back
    blocked.join();
  }
}

// The time is a lower bound, which no busy machine breaks.
void NoMoreBytesASecondThanTheRate(Place* run) {
  TemporaryDir local;
  const std::string data(kSize, 'z');
  Options options = ForRank(0, 1, local.path());
  options.rate = uint64_t{4} << 20;
  Engine engine(options, Env::Posix(), run->Open());
  const uint64_t begin_us = Env::Posix()->NowMicros();
  constexpr int64_t kSteps = 5;
  for (int64_t step = 1; step <= kSteps; ++step) CHECK_OK(engine.Submit(step, Share(data, 0, 1), "", kLong));
  CHECK_OK(engine.Drain(kLong));
  const double seconds = static_cast<double>(Env::Posix()->NowMicros() - begin_us) * 1e-6;
  CHECK(seconds >= static_cast<double>(kSteps * kSize) / static_cast<double>(options.rate) - 1);
  CHECK_EQ(run->Model(kSteps), data);
}

// While a write waits for its turn the rank moves, so that no bound of another rank, or of a caller, ends.
void WaitingForTheRateIsNoHang(Place* run) {
  const std::string data(kSize, 'z');
  Options options = ForRank(0, 1, "");
  options.rate = 1024;  // the first run of 64 KiB waits for a minute
  Engine engine(options, Env::Posix(), run->Open());
  CHECK_OK(engine.Submit(1, Share(data, 0, 1), "", kLong));
  while (engine.IdleMs() < 10) std::this_thread::yield();
  while (engine.IdleMs() >= 10) std::this_thread::yield();  // moved since
  std::string where;
  CHECK(engine.Stop(kLong, &where));  // at once
}

void WrongRegionsAreRefused(Place* run) {
  const std::string data(kSize, 'z');  // outlives the engine, which reads it until it has closed
  Engine engine(ForRank(0, 1, ""), Env::Posix(), run->Open());
  CHECK(engine.Submit(1, {{data.data(), 10, kSize - 9}}, "", 0).code() == Code::kInvalid);
  CHECK(engine.Submit(1, {{data.data(), 10, 5}, {data.data(), 10, 14}}, "", 0).code() == Code::kInvalid);
  CHECK(engine.Submit(1, {{nullptr, 10, 0}}, "", 0).code() == Code::kInvalid);
  CHECK(engine.Submit(-1, {}, "", 0).code() == Code::kInvalid);
}

// A wait that takes long is logged once in an eighth of its bound, with the rank that is waited for.
void ALongWaitIsLogged(Place* run) {
  const std::string data(kSize, 'w');  // outlives the engine, which reads it until it has closed
  Options options = ForRank(0, 2, "");
  options.commit_timeout_ms = 400;
  Engine engine(options, Env::Posix(), run->Open());
  CHECK_OK(engine.Submit(1, Share(data, 0, 2), "", kLong));
  CHECK_EQ(engine.Wait(1, DF_EXTERNAL, kLong).code(), Code::kIncomplete);
  int lines = 0;
  for (const Report& report : engine.Poll(99)) {
    if (report.step >= 0) continue;
    CHECK_EQ(report.level, DF_INFORMS);
    CHECK(report.message.find(": rank 1's record is missing") != std::string::npos);
    ++lines;
  }
  CHECK(lines >= 1 && lines <= 7);  // fewer on a machine that is busy
}

// If two clients of a network file system write to one page, bytes of the page may be lost.
void APartOfAPageIsRefusedBeforeAnythingIsWritten(Place* run) {
  const std::string data(kSize, 'z');  // outlives the engine, which reads it until it has closed
  Engine engine(ForRank(0, 2, ""), Env::Posix(), run->Open());
  const auto refused = [&](const std::vector<Region>& regions, const std::string& found) {
    CapturePlan plan;
    for (const Status& status : {engine.Submit(1, regions, "", 0), engine.Plan(regions, 0, 0, &plan)}) {
      CHECK_EQ(status.code(), Code::kInvalid);
      CHECK(status.message().find("every page of 4096 bytes that a rank writes to whole") != std::string::npos);
      CHECK(status.message().find(found) != std::string::npos);
    }
  };
  refused({{data.data(), 5000, 0}}, "found a piece that ends at byte 5000");
  refused({{data.data(), 4096, 0}, {data.data(), 4096, 8193}}, "found a piece that begins at byte 8193");
  refused({{data.data(), 4000, 0}, {data.data(), 4096, 8192}}, "found a piece that ends at byte 4000");
  refused({{data.data(), 16, kSize - 16}}, "found a piece that begins at byte " + std::to_string(kSize - 16));
  // Regions that follow each other count as one, and the end of the file counts as the end of a page.
  const uint64_t last = kSize - 17;
  CHECK_OK(engine.Submit(1, {{data.data(), 5000, 0}, {data.data(), 3192, 5000}, {data.data(), 17, last}}, "", kLong));
}

void AGapInTheFileFailsTheStepAndOnlyIt(Place* run) {
  const std::string data(kSize, 'z');  // outlives the engine, which reads it until it has closed
  Engine engine(ForRank(0, 1, ""), Env::Posix(), run->Open());
  CHECK_OK(engine.Submit(1, {{data.data(), 4096, 0}}, "", kLong));
  CHECK(engine.Wait(1, DF_EXTERNAL, kLong).code() == Code::kCorrupt);
  CHECK_OK(engine.Submit(2, Share(data, 0, 1), "", kLong));
  CHECK_OK(engine.Wait(2, DF_EXTERNAL, kLong));
}

// Two ranks have private bytes with three checksums each. Their last checksums differ.
void RanksThatDifferAreNamedAndMarked(Place* run) {
  for (const bool refuse : {false, true}) {
    const std::string data(kSize, 'd');
    std::vector<std::unique_ptr<Engine>> engines;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      Options options = ForRank(rank, 2, "");
      options.identity.hashes = 3;
      options.identity.attempt[0] = refuse ? 1 : 0;
      options.refuse_diverged = refuse ? Refuse::kAll : Refuse::kNone;
      engines.push_back(std::make_unique<Engine>(options, Env::Posix(), run->Open()));
    }
    const int64_t first = refuse ? 3 : 1;
    for (const int64_t step : {first, first + 1}) {
      const bool alike = step > first;
      for (uint32_t rank = 0; rank < 2; ++rank) {
        const std::string hashes = std::string("AAAABBBB") + (rank == 0 || alike ? "CCCC" : "cccc");
        CHECK_OK(engines[rank]->Submit(step, Share(data, rank, 2), "own bytes " + hashes, kLong));
      }
      for (auto& engine : engines) CHECK_EQ(engine->Wait(step, DF_EXTERNAL, kLong).ok(), alike || !refuse);
      for (const Report& report : engines[0]->Poll(9)) {
        CHECK_EQ(report.diverged, alike ? -1 : 2);
        CHECK_EQ(report.message.find("1 tensor differs between the ranks, the first on rank 1") != std::string::npos,
                 !alike);
      }
      Manifest manifest;
      CHECK_EQ(run->Find(step, &manifest), alike || !refuse);
      CHECK_EQ(manifest.diverged, alike || refuse ? 0U : 1U);
    }
  }
}

// Two ranks with three checksums each, which run one after the other through given steps.
class TwoRanks {
 public:
  TwoRanks(Place* run, const std::function<void(Options*)>& change) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      Options options = ForRank(rank, 2, "");
      options.identity.hashes = 3;
      change(&options);
      engines_.push_back(std::make_unique<Engine>(options, Env::Posix(), run->Open()));
    }
  }

  // Runs one step. Returns whether it was committed, and rank 0's report. Empty checksums: the ranks are not compared.
  bool Step(int64_t step, const std::string& first, const std::string& second, Report* report,
            const std::string& values = "") {
    const std::string none(12, '\0');
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const std::string& hashes = rank == 0 ? first : second;
      CHECK_OK(engines_[rank]->Submit(step, Share(data_, rank, 2), hashes.empty() ? none : hashes, kLong, {}, values));
    }
    bool committed = true;
    for (auto& engine : engines_) committed = engine->Wait(step, DF_EXTERNAL, kLong).ok() && committed;
    CHECK_OK(engines_[0]->Drain(kLong));
    for (Report& one : engines_[0]->Poll(9)) *report = std::move(one);
    CHECK_EQ(report->step, step);
    return committed;
  }

  Engine* engine(size_t rank) { return engines_[rank].get(); }

 private:
  const std::string data_ = std::string(kSize, 'd');
  std::vector<std::unique_ptr<Engine>> engines_;
};

uint32_t MarkOf(Place* run, int64_t step) {
  Manifest manifest;
  CHECK(run->Find(step, &manifest));
  return manifest.diverged;
}

void AStepThatIsNotComparedIsMarkedUntilTheRanksAgreeAgain(Place* run) {
  TwoRanks ranks(run, [](Options*) {});
  const std::string a = "AAAABBBBCCCC";
  const std::string b = "AAAAbbbbcccc";
  Report report;
  CHECK(ranks.Step(1, "", "", &report));
  CHECK_EQ(report.diverged, -1);
  CHECK(ranks.Step(2, a, b, &report));
  CHECK(ranks.Step(3, "", "", &report));
  CHECK_EQ(report.diverged, 1);
  CHECK_EQ(report.message, "not compared since step 2: 2 tensors differ between the ranks, the first on rank 1");
  CHECK(ranks.Step(4, "", "", &report));
  CHECK(ranks.Step(5, a, a, &report));
  CHECK_EQ(report.diverged, -1);
  CHECK(ranks.Step(6, "", "", &report));
  CHECK_EQ(report.message, "");
  const uint32_t marks[] = {0, 2, 2, 2, 0, 0};
  for (int64_t step = 1; step <= 6; ++step) CHECK_EQ(MarkOf(run, step), marks[step - 1]);
}

void TheManifestHasTheValuesThatRank0BringsAlong(Place* run) {
  TwoRanks ranks(run, [](Options*) {});
  Report report;
  CHECK(ranks.Step(1, "", "", &report, Value("manifest", "{\"note\":\"}\"}")));
  CHECK(ranks.Step(2, "", "", &report, UnknownValues()));
  Manifest manifest;
  CHECK(run->Find(1, &manifest));
  CHECK_EQ(manifest.values, "{\"note\":\"}\"}");
  CHECK(run->Find(2, &manifest));
  CHECK_EQ(manifest.values, "{}");
}

void OnlyAComparisonOfWholeTensorsEndsTheMark(Place* run) {
  TwoRanks ranks(run, [](Options*) {});
  const std::string a = "AAAABBBBCCCC";
  const std::string part_a = std::string(4, '\0') + "bbbb" + std::string(4, '\0');
  const std::string part_b = std::string(4, '\0') + "BBBB" + std::string(4, '\0');
  const std::string first = Value("compared_part", Little(0, 8) + Little(4096, 8));
  const std::string second = Value("compared_part", Little(4096, 8) + Little(8192, 8));
  Report report;
  CHECK(ranks.Step(1, a, a, &report));
  CHECK(ranks.Step(2, part_a, part_a, &report, first));
  CHECK_EQ(report.diverged, -1);
  CHECK(ranks.Step(3, part_a, part_b, &report, second));
  CHECK_EQ(report.diverged, 1);
  CHECK_EQ(report.message, "1 tensor differs between the ranks, the first on rank 1");
  CHECK(ranks.Step(4, part_a, part_a, &report, first));
  CHECK_EQ(report.message, "not compared since step 3: 1 tensor differs between the ranks, the first on rank 1");
  CHECK(ranks.Step(5, a, "aaaabbbbCCCC", &report));
  CHECK(ranks.Step(6, part_a, part_b, &report, first));  // a part has less to say than the whole comparison before
  CHECK_EQ(report.diverged, 0);
  CHECK(ranks.Step(7, a, a, &report));
  CHECK(ranks.Step(8, part_a, part_a, &report, first));
  CHECK_EQ(report.message, "");
  const uint32_t marks[] = {0, 0, 1, 1, 2, 2, 0, 0};
  for (int64_t step = 1; step <= 8; ++step) CHECK_EQ(MarkOf(run, step), marks[step - 1]);
}

void ADifferenceAtTheFirstTwoComparisonsIsRefusedUntilTheRanksAgree(Place* run) {
  TwoRanks ranks(run, [](Options* options) { options->refuse_diverged = Refuse::kFirst; });
  const std::string a = "AAAABBBBCCCC";
  const std::string b = "AAAAbbbbcccc";
  Report report;
  CHECK(ranks.Step(1, a, a, &report));
  CHECK(ranks.Step(2, "", "", &report));
  CHECK(!ranks.Step(3, a, b, &report));
  CHECK(report.code == Code::kDiverged);
  CHECK(!ranks.Step(4, "", "", &report));
  CHECK(!ranks.Step(5, a, b, &report));
  CHECK(ranks.Step(6, a, a, &report));
  // A difference that comes later is marked, and the checkpoint committed.
  CHECK(ranks.Step(7, a, b, &report));
  CHECK(ranks.Step(8, "", "", &report));
  CHECK_EQ(MarkOf(run, 6), 0U);
  CHECK_EQ(MarkOf(run, 7), 2U);
  CHECK_EQ(MarkOf(run, 8), 2U);
}

void WhatIsToldGoesAndNothingElse(Place* run) {
  TwoRanks ranks(run, [](Options*) {});
  const auto there = [&] {
    std::vector<int64_t> steps;
    for (int64_t step = 1; step <= 8; ++step) {
      if (run->Has(step)) steps.push_back(step);
    }
    return steps;
  };
  const std::string a = "AAAABBBBCCCC";
  Report report;
  for (int64_t step = 1; step <= 5; ++step) CHECK(ranks.Step(step, a, a, &report));
  CHECK(there() == std::vector<int64_t>({1, 2, 3, 4, 5}));
  CHECK_OK(ranks.engine(0)->Remove({2, 4, 7}));  // there is no step 7
  CHECK_OK(ranks.engine(0)->Drain(kLong));
  CHECK(there() == std::vector<int64_t>({1, 3, 5}));
  CHECK_OK(ranks.engine(0)->Remove({}));
  CHECK(ranks.engine(1)->Remove({1}).code() == Code::kInvalid);
  CHECK(ranks.Step(6, a, a, &report));
  CHECK(there() == std::vector<int64_t>({1, 3, 5, 6}));
  CHECK(ranks.engine(0)->Poll(9).empty());  // no notice
}

// One rank makes the model file and reserves its blocks, for all.
void TheRankThatMakesTheFileAloneReservesItsBlocks() {
  constexpr uint32_t kWorld = 8;
  constexpr int64_t kSteps = 3;
  DirectoryPlace run;
  const std::string data(kSize, 'd');
  std::vector<std::unique_ptr<FaultEnv>> envs;
  std::vector<std::unique_ptr<Engine>> engines;
  for (uint32_t rank = 0; rank < kWorld; ++rank) {
    envs.push_back(std::make_unique<FaultEnv>(Env::Posix(), FaultsOf("delay=0:fallocate::1+"), ""));
    FaultEnv* env = envs.back().get();
    engines.push_back(std::make_unique<Engine>(ForRank(rank, kWorld, ""), env, run.OpenOn(env)));
  }
  for (int64_t step = 1; step <= kSteps; ++step) {
    for (uint32_t rank = 0; rank < kWorld; ++rank) {
      CHECK_OK(engines[rank]->Submit(step, Share(data, rank, kWorld), "", kLong));
    }
    for (auto& engine : engines) CHECK_OK(engine->Wait(step, DF_EXTERNAL, kLong));
    uint64_t reserved = 0;
    for (auto& env : envs) reserved += env->seen();
    CHECK_EQ(reserved, static_cast<uint64_t>(step));
  }
}

// The file is there at the second try, and nobody else has reserved its blocks.
void ATryThatIsRepeatedReservesBlocksAgain() {
  for (const std::string fault : {"fail=EIO:pwrite:model:1", "fail=EIO:fallocate:model:1"}) {
    DirectoryPlace run;
    const std::string data(kSize, 'd');
    FaultEnv env(Env::Posix(), FaultsOf("delay=0:fallocate:model:1+," + fault), "");
    Engine engine(ForRank(0, 1, ""), &env, run.OpenOn(&env));
    CHECK_OK(engine.Submit(1, Share(data, 0, 1), "", kLong));
    CHECK_OK(engine.Wait(1, DF_EXTERNAL, kLong));
    CHECK_EQ(env.seen(), 2U);
    CHECK_EQ(run.Model(1), data);
  }
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  for (const auto& test :
       {ManyStepsOfTwoRanks, CloseAtAnyTime, NoMoreBytesASecondThanTheRate, WaitingForTheRateIsNoHang,
        WrongRegionsAreRefused, ALongWaitIsLogged, APartOfAPageIsRefusedBeforeAnythingIsWritten,
        AGapInTheFileFailsTheStepAndOnlyIt, RanksThatDifferAreNamedAndMarked,
        AStepThatIsNotComparedIsMarkedUntilTheRanksAgreeAgain, OnlyAComparisonOfWholeTensorsEndsTheMark,
        TheManifestHasTheValuesThatRank0BringsAlong, ADifferenceAtTheFirstTwoComparisonsIsRefusedUntilTheRanksAgree,
        WhatIsToldGoesAndNothingElse}) {
    DirectoryPlace directory;
    test(&directory);
    MemoryPlace memory;
    test(&memory);
  }
  TheRankThatMakesTheFileAloneReservesItsBlocks();
  ATryThatIsRepeatedReservesBlocksAgain();
}
