// What the engine asks of a store, and what it does where a store answers with an error: on a directory, and on a store
// without directories and rename.
#include "store/store.h"

#include <atomic>
#include <cerrno>
#include <vector>

#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "engine/rescue.h"
#include "testing/check.h"
#include "testing/place.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;
constexpr uint64_t kSize = 40 * 4096 + 17;

Options ForRank(uint32_t rank, uint32_t world, const std::string& local = "") {
  Options options;
  options.identity.rank = rank;
  options.identity.world = world;
  options.identity.file_size = kSize;
  options.writers = 2;
  options.chunk_bytes = uint64_t{4} * 4096;
  options.commit_timeout_ms = kLong;
  options.local_dir = local;
  return options;
}

// The regions of a rank's share of the file. The second begins within a page.
std::vector<Region> Share(const std::string& data, uint32_t rank, uint32_t world) {
  const uint64_t share = kSize / 4096 / world * 4096;
  const uint64_t begin = share * rank;
  const uint64_t end = rank + 1 == world ? kSize : begin + share;
  return {{data.data() + begin, 1000, begin}, {data.data() + begin + 1000, end - begin - 1000, begin + 1000}};
}

class TwoRanks {
 public:
  explicit TwoRanks(Place* run) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      engines_.push_back(std::make_unique<Engine>(ForRank(rank, 2), Env::Posix(), run->Open()));
    }
  }

  // What rank 0 says of the step. The other rank says so too.
  Status Step(int64_t step) {
    for (uint32_t rank = 0; rank < 2; ++rank) {
      CHECK_OK(engines_[rank]->Submit(step, Share(data_, rank, 2), "", kLong));
    }
    const Status end = engines_[0]->Wait(step, DF_EXTERNAL, kLong);
    CHECK_EQ(engines_[1]->Wait(step, DF_EXTERNAL, kLong).ok(), end.ok());
    return end;
  }

  Engine* engine(size_t rank) { return engines_[rank].get(); }

 private:
  const std::string data_ = std::string(kSize, 'd');
  std::vector<std::unique_ptr<Engine>> engines_;
};

// No rank sees the other, so both end before the step is committed, and leave their slots.
void SlotsOfADeadAttemptAreFinished(Place* run) {
  const std::string data(kSize, 'd');
  TemporaryDir local;
  std::vector<std::string> slots;
  for (const uint32_t rank : {0, 1}) {
    MemoryPlace alone;
    const Options options = ForRank(rank, 2, local.path());
    Engine engine(options, Env::Posix(), alone.Open());
    CHECK_OK(engine.Submit(7, Share(data, rank, 2), "p", kLong));
    CHECK_OK(engine.Wait(7, DF_LOCAL, kLong));
    slots.push_back(SlotStore(Env::Posix(), local.path(), options.identity, 1).path(0));
  }
  const auto store = run->Open();
  CHECK_EQ(store->Finish(7, Id{}).code(), Code::kIncomplete);
  for (const std::string& slot : {slots[0], slots[0], slots[1]}) {
    CHECK_OK(RescueSlot(Env::Posix(), slot, store.get()));
  }
  CHECK(!run->Has(7));
  CHECK_OK(store->Finish(7, Id{}));
  CHECK_OK(store->Finish(7, Id{}));
  CHECK_EQ(run->Model(7), data);
  CHECK_OK(RescueSlot(Env::Posix(), slots[0], store.get()));
  CHECK_EQ(run->Model(7), data);
}

void TheNewestIsTheLastThatIsCommitted(Place* run) {
  const auto store = run->Open();
  const auto newest = [&]() -> int64_t {
    Manifest manifest;
    bool found = false;
    CHECK_OK(store->Newest(&manifest, &found));
    return found ? manifest.identity.step : -1;
  };
  CHECK_EQ(newest(), -1);
  const std::string data(kSize, 'd');
  Engine engine(ForRank(0, 1), Env::Posix(), run->Open());
  for (const int64_t step : {9, 10, 100}) {
    CHECK_OK(engine.Submit(step, Share(data, 0, 1), "", kLong));
    CHECK_OK(engine.Wait(step, DF_EXTERNAL, kLong));
    CHECK_EQ(newest(), step);
  }
  CHECK_OK(engine.Remove({100}));
  CHECK_OK(engine.Drain(kLong));
  CHECK_EQ(newest(), 10);
}

// The one call that commits has answered with an error. Whether it has done what was asked is found by looking.
void ACommitInDoubtIsSettledWithoutARename() {
  for (const bool done : {true, false}) {
    MemoryPlace run;
    std::atomic<int> puts{0};
    const auto refuse = [&](const std::string& key) {
      return key == StepName(1) && ++puts == 1 ? Status::FromErrno(EROFS, "put", key) : Status();
    };
    (done ? run.blobs()->after_put : run.blobs()->before_put) = refuse;
    TwoRanks ranks(&run);
    CHECK_EQ(ranks.Step(1).ok(), done);
    CHECK_EQ(run.Has(1), done);
    CHECK_OK(ranks.Step(2));
  }
}

void AnErrorThatPassesCostsNoCheckpoint() {
  const std::string data(kSize, 'd');
  for (const std::string& of : {Join(PartialName(1, Id{}), "shard-0-0"), Join(PartialName(1, Id{}), RecordName(0)),
                                Join(PartialName(1, Id{}), kRecordsName), StepName(1)}) {
    MemoryPlace run;
    std::atomic<int> puts{0};
    run.blobs()->before_put = [&](const std::string& key) {
      return key == of && ++puts <= 2 ? Status::FromErrno(ETIMEDOUT, "put", key) : Status();
    };
    Engine engine(ForRank(0, 1), Env::Posix(), run.Open());
    CHECK_OK(engine.Submit(1, Share(data, 0, 1), "", kLong));
    CHECK_OK(engine.Wait(1, DF_EXTERNAL, kLong));
    CHECK(puts > 2);
    CHECK_EQ(run.Model(1), data);
  }
}

// Another attempt has the run: nothing is committed any more, and nothing removed.
void WhoHasLostTheRunChangesNothing() {
  MemoryPlace run;
  TwoRanks ranks(&run);
  CHECK_OK(ranks.Step(1));
  CHECK_OK(run.blobs()->Put(kOwnerName, std::string(32, 'f') + "\n"));
  CHECK_EQ(ranks.Step(2).code(), Code::kTaken);
  CHECK_OK(ranks.engine(0)->Remove({1}));
  CHECK_OK(ranks.engine(0)->Drain(kLong));
  CHECK(run.Has(1) && !run.Has(2));
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  for (const auto& test : {SlotsOfADeadAttemptAreFinished, TheNewestIsTheLastThatIsCommitted}) {
    DirectoryPlace directory;
    test(&directory);
    MemoryPlace memory;
    test(&memory);
  }
  ACommitInDoubtIsSettledWithoutARename();
  AnErrorThatPassesCostsNoCheckpoint();
  WhoHasLostTheRunChangesNothing();
}
