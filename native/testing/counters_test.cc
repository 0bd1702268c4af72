// What an engine counts: calls and bytes by place, direct or not, and the CPU time of its threads.
#include "base/counters.h"

#include <atomic>
#include <thread>

#include "base/counting_env.h"
#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "format/names.h"
#include "testing/check.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kPages = uint64_t{64} * 4096;
constexpr uint64_t kLong = 60000;

void CallsAndBytesAreOfThePlaceThatTheirPathNames() {
  TemporaryDir run;
  TemporaryDir local;
  Counters counters;
  CountingEnv env(Env::Posix(), local.path(), &counters);
  const std::string text(5000, 'x');
  for (const std::string& where : {run.path(), local.path()}) {
    std::unique_ptr<File> file;
    CHECK_OK(env.Open(Join(where, "file"), OpenMode::kUpdate, &file));
    CHECK_OK(WriteFull(file.get(), 0, text.data(), text.size()));
    CHECK_OK(file->DataSync());
    CHECK_OK(env.Rename(Join(where, "file"), Join(where, "renamed")));
    CHECK_OK(env.SyncDir(where));
    std::string read;
    CHECK_OK(ReadSmallFile(&env, Join(where, "renamed"), 9000, &read));
    CHECK_EQ(read, text);
  }
  std::vector<std::string> names;
  bool exists = false;
  CHECK_OK(env.List(local.path(), &names, &exists));
  for (const PlaceCounters* place : {&counters.external, &counters.local}) {
    CHECK_EQ(place->cached_bytes.value(), text.size());
    CHECK_EQ(place->direct_bytes.value(), 0U);
    CHECK_EQ(place->read_bytes.value(), text.size());
    CHECK_EQ(place->syncs.value(), 2U);
    CHECK_EQ(place->metadata.value(), 3U);  // two opens and a rename
  }
  CHECK_EQ(counters.local.lists.value(), 1U);
  CHECK_EQ(counters.local.names.value(), 1U);
  CHECK_EQ(counters.external.lists.value(), 0U);
  // A directory whose name begins as the local tier's does is another one.
  FileInfo info;
  CHECK_OK(env.Stat(local.path() + "-other", &info));
  CHECK_EQ(counters.external.metadata.value(), 4U);
}

// A file system may refuse a direct write although it has opened the file for such: the file then leaves direct writes.
class Refusing final : public File {
 public:
  Refusing() : File("refusing") {}
  Status PRead(uint64_t, void*, size_t, size_t*) override { return {}; }
  Status PWrite(uint64_t, const void*, size_t n, size_t* done) override {
    direct_ = direct_ && ++writes_ < 3;
    *done = n;
    return {};
  }
  bool Direct() const override { return direct_; }
  Status Size(uint64_t*) override { return {}; }
  Status Number(uint64_t*) override { return {}; }
  Status Truncate(uint64_t) override { return {}; }
  Status Allocate(uint64_t) override { return {}; }
  Status DataSync() override { return {}; }
  Status Sync() override { return {}; }
  Status Map(uint64_t, char**) override { return {}; }
  void StartWriteback(uint64_t, uint64_t) override {}
  Status Close() override { return {}; }

 private:
  bool direct_ = true;
  int writes_ = 0;
};

void BytesOfARefusedDirectWriteHaveGoneThroughTheCache() {
  PlaceCounters place;
  const std::unique_ptr<File> file = Counting(std::make_unique<Refusing>(), &place);
  char byte = 0;
  for (int i = 0; i < 4; ++i) CHECK_OK(WriteFull(file.get(), 0, &byte, 1));
  CHECK_EQ(place.direct_bytes.value(), 2U);
  CHECK_EQ(place.cached_bytes.value(), 2U);
}

void ACallCountsIfItLastsLongEnough() {
  Counter calls;
  Counter us;
  {
    const CountedTime time(Env::Posix(), &calls, &us, 3600000000U);
  }
  CHECK_EQ(calls.value(), 0U);
  {
    const CountedTime time(Env::Posix(), &calls, &us, 1000);
    Env::Posix()->SleepMillis(2);
  }
  CHECK_EQ(calls.value(), 1U);
  CHECK(us.value() >= 2000);
}

void TheTimeOfAThreadStaysWhenTheThreadHasEnded() {
  ThreadClocks clocks;
  std::atomic<int> stage{0};
  std::thread thread([&] {
    const ThreadClocks::Running clock(&clocks, "busy");
    const ThreadClocks::Running nothing(nullptr, "nothing");
    while (clocks.Seconds()["busy"] < 0.01) {
    }
    stage = 1;
    while (stage == 1) std::this_thread::yield();
  });
  while (stage == 0) std::this_thread::yield();
  const double running = clocks.Seconds()["busy"];
  CHECK(running >= 0.01);
  stage = 2;
  thread.join();
  CHECK(clocks.Seconds()["busy"] >= running);
  CHECK_EQ(clocks.Seconds().size(), 1U);
  CHECK_EQ(clocks.Total(), clocks.Seconds()["busy"]);
}

void AnEngineCountsWhatACheckpointTakes() {
  TemporaryDir run;
  TemporaryDir local;
  Options options;
  options.identity.file_size = kPages;
  options.commit_timeout_ms = kLong;
  options.run_dir = run.path();
  options.local_dir = local.path();
  Engine engine(options, Env::Posix());
  const std::string data(kPages, 'd');
  CHECK_OK(engine.Submit(1, {{data.data(), kPages, 0}}, "", kLong));
  CHECK_OK(engine.Drain(kLong));
  const Counters& counters = engine.counters();
  CHECK(counters.external.direct_bytes.value() + counters.external.cached_bytes.value() > kPages);  // and the record
  CHECK(counters.local.direct_bytes.value() + counters.local.cached_bytes.value() > kPages);        // and the header
  CHECK(counters.external.writing.Micros() > 0 && counters.local.writing.Micros() > 0);
  CHECK(counters.external.syncs.value() >= 4);  // the model file, the record, the manifest, the run's directory
  CHECK(counters.looks.value() >= 1);
  CHECK(counters.external.metadata.value() > 0 && counters.local.metadata.value() > 0);
  const auto threads = counters.threads.Seconds();
  for (const char* name : {"df-commit", "df-local", "df-publish", "df-retention", "df-transfer", "df-writer"}) {
    CHECK_EQ(threads.count(name), 1U);
  }
}

void TimeInWhichSeveralThingsAreUnderWayCountsOnce() {
  BusyClock clock;
  CHECK_EQ(clock.Micros(), 0U);
  const uint64_t begun_us = Env::Posix()->NowMicros();
  {
    const BusyClock::Running one(&clock);
    const BusyClock::Running another(&clock);
    Env::Posix()->SleepMillis(20);
    CHECK(clock.Micros() >= 19000);
  }
  const uint64_t busy_us = clock.Micros();
  CHECK(busy_us >= 20000 && busy_us <= Env::Posix()->NowMicros() - begun_us + 1);
  Env::Posix()->SleepMillis(5);
  CHECK_EQ(clock.Micros(), busy_us);
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::CallsAndBytesAreOfThePlaceThatTheirPathNames();
  deepfreeze::BytesOfARefusedDirectWriteHaveGoneThroughTheCache();
  deepfreeze::ACallCountsIfItLastsLongEnough();
  deepfreeze::TheTimeOfAThreadStaysWhenTheThreadHasEnded();
  deepfreeze::AnEngineCountsWhatACheckpointTakes();
  deepfreeze::TimeInWhichSeveralThingsAreUnderWayCountsOnce();
  return 0;
}
