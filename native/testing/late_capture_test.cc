// Groups that are captured late: their tensors are held in their own step and copied in the next one.
#include <chrono>
#include <thread>

#include "graph/capture_area.h"
#include "testing/check.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLong = 60000;

// Tensors of a framework, for one group. `live` counts those objects that hold some.
class Tensors : public CaptureArea::Tensors {
 public:
  Tensors(std::vector<CaptureArea::Source> sources, int* live, uint64_t apart = 0)
      : sources_(std::move(sources)), live_(live), apart_(apart) {
    ++*live_;
  }
  ~Tensors() override { --*live_; }

  const std::vector<CaptureArea::Source>& sources() const override { return sources_; }
  uint64_t Apart() const override { return apart_; }

 private:
  const std::vector<CaptureArea::Source> sources_;
  int* const live_;
  const uint64_t apart_;
};

// A group that is captured late keeps its tensors, and only them, until they are copied: by the next step, or by the
// collection of the capture.
void ALateGroupHoldsItsTensorsUntilTheyAreCopied() {
  CaptureArea area(Env::Posix());
  CHECK_OK(area.SetGroup(0, {{0, 0, 8, 0}}));
  CHECK_OK(area.SetGroup(1, {{0, 0, 4, 8}, {0, 4, 4, 12}}));
  CHECK_OK(area.SetLate(1, true));
  CHECK(area.SetLate(2, true).code() == Code::kInvalid);
  int live = 0;
  const auto capture = [&](size_t group, const char* bytes, uint64_t apart = 0) {
    const std::vector<CaptureArea::Source> sources = {{bytes, 8}};
    CHECK_OK(area.CaptureTensors(group, std::make_unique<Tensors>(sources, &live, apart)));
  };
  char* base = nullptr;
  auto owner = CaptureArea::Owner::kEngine;
  for (const bool next_step : {true, false}) {
    capture(0, "01234567");
    CHECK_EQ(live, 0);
    capture(1, "before..");
    capture(1, "abcdefgh");  // in place of the first
    CHECK_EQ(live, 1);
    CHECK_EQ(area.Held(), 1U);
    CHECK_OK(area.SetGroup(1, {{0, 0, 8, 0}}));  // of the next capture
    if (next_step) {
      CHECK_OK(area.CaptureHeld(0));
      CHECK_OK(area.CaptureHeld(1));
      CHECK_OK(area.CaptureHeld(1));  // nothing is left to do
      CHECK_EQ(live, 0);
    }
    CHECK_OK(area.Collect(&base, &owner));
    CHECK_EQ(std::string(base, 16), "01234567abcdefgh");
    CHECK_EQ(live, 0);
    CHECK_OK(area.SetGroup(1, {{0, 0, 4, 8}, {0, 4, 4, 12}}));
  }
  // What is forgotten is in no later capture.
  capture(1, "forgot..");
  area.Discard();
  CHECK_EQ(live, 0);
  CHECK(area.Collect(&base, &owner).code() == Code::kInvalid);
  // A piece outside of its tensor is found when it is copied, and the tensors are released all the same.
  CHECK_OK(area.SetGroup(1, {{0, 8, 8, 8}}));
  capture(1, "too few.");
  CHECK(area.CaptureHeld(1).code() == Code::kInvalid);
  CHECK_EQ(live, 0);
}

void ALateGroupReleasesItsTensorsWithoutAnEngine() {
  int live = 0;
  const TemporaryDir run;
  CapturePlan plan;
  Options options;
  options.identity.file_size = 8;
  options.run_dir = run.path();
  auto engine = std::make_shared<Engine>(options, Env::Posix());
  CHECK_OK(engine->Plan({{nullptr, 8, 0}}, 0, 0, &plan));
  CaptureArea area(Env::Posix());
  CHECK_OK(area.SetGroup(0, {{0, 0, 8, plan.places[0]}}));
  CHECK_OK(area.SetLate(0, true));
  area.Attach(engine, kLong);
  const std::vector<CaptureArea::Source> sources = {{"01234567", 8}};
  CHECK_OK(area.CaptureTensors(0, std::make_unique<Tensors>(sources, &live)));
  CHECK_EQ(live, 1);
  engine.reset();
  CHECK_OK(area.CaptureHeld(0));
  CHECK_EQ(live, 0);
  // There is no memory for a capture: nothing is held for it.
  CHECK_OK(area.CaptureTensors(0, std::make_unique<Tensors>(sources, &live)));
  CHECK_EQ(live, 0);
  char* base = nullptr;
  auto owner = CaptureArea::Owner::kEngine;
  CHECK(area.Collect(&base, &owner).code() == Code::kClosed);
}

void AGroupsNoteTellsWhenItWasUpdatedAndWhatHoldingCost() {
  CaptureArea area(Env::Posix());
  CHECK_OK(area.SetGroup(0, {{0, 0, 8, 0}}));
  CHECK_OK(area.SetGroup(1, {{0, 0, 8, 8}}));
  CHECK_OK(area.SetGroup(2, {{0, 0, 8, 16}}));
  CHECK_OK(area.SetLate(2, true));
  CaptureArea::Note note;
  CHECK(area.GetNote(3, &note).code() == Code::kInvalid);
  int live = 0;
  for (const uint64_t apart : {uint64_t{2} << 20, uint64_t{0}}) {
    area.BeginStep();
    const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
    pause();
    CHECK_OK(area.Capture(0, {{"01234567", 8}}));
    pause();
    const std::vector<CaptureArea::Source> sources = {{"01234567", 8}};
    CHECK_OK(area.CaptureTensors(2, std::make_unique<Tensors>(sources, &live, apart)));
    pause();
    CHECK_OK(area.Capture(1, {{"01234567", 8}}));
    area.BeginStep();  // the next step does not change what is known of the last one
    CHECK_OK(area.CaptureHeld(2));
    double before = 0;
    for (const size_t group : {0, 2, 1}) {
      CHECK_OK(area.GetNote(group, &note));
      CHECK(note.updated > before && (note.updated < 1 || group == 1));
      before = note.updated;
      CHECK_EQ(note.apart, group == 2 && apart > (1 << 20));
    }
    CHECK_EQ(before, 1.0);
    char* base = nullptr;
    auto owner = CaptureArea::Owner::kEngine;
    CHECK_OK(area.Collect(&base, &owner));
  }
}

}  // namespace
}  // namespace deepfreeze

int main() {
  using namespace deepfreeze;
  ALateGroupHoldsItsTensorsUntilTheyAreCopied();
  ALateGroupReleasesItsTensorsWithoutAnEngine();
  AGroupsNoteTellsWhenItWasUpdatedAndWhatHoldingCost();
}
