#include "format/names.h"

#include "testing/check.h"

namespace deepfreeze {
namespace {

void NamesAreThoseOfTheFormat() {
  Id attempt{};
  attempt[0] = 0xab;
  const std::string hex = "ab000000000000000000000000000000";
  CHECK_EQ(StepName(40), "step-0000000040");
  CHECK_EQ(StepName(123456789012), "step-123456789012");
  CHECK_EQ(PartialName(40, attempt), "step-0000000040.partial-" + hex);
  CHECK_EQ(FailedStepName(40, attempt), "step-0000000040.failed-" + hex);
  CHECK_EQ(TrashName(40, attempt), ".trash-step-0000000040-" + hex);
  CHECK_EQ(RecordName(3), "rank-00003.record");
  CHECK_EQ(RecordName(123456), "rank-123456.record");
  CHECK_EQ(FailedName(3), "rank-00003.failed");
  CHECK_EQ(SlotName(3, attempt, 0), "rank-00003-" + hex + "-0.slot");
  CHECK_EQ(AliveName(3, 7), "rank-00003-7.alive");
  CHECK_EQ(UserDirName(1000), "deepfreeze-1000");
}

void ParsingUndoesMaking() {
  Id attempt{};
  attempt[15] = 7;
  for (int64_t step : {int64_t{0}, int64_t{40}, int64_t{123456789012}}) {
    CHECK(ParseRunEntry(StepName(step)).kind == EntryKind::kStep);
    CHECK_EQ(ParseRunEntry(StepName(step)).step, step);
    for (const auto& [name, kind] : {std::pair{PartialName(step, attempt), EntryKind::kPartial},
                                     std::pair{FailedStepName(step, attempt), EntryKind::kFailed},
                                     std::pair{TrashName(step, attempt), EntryKind::kTrash}}) {
      const RunEntry entry = ParseRunEntry(name);
      CHECK(entry.kind == kind && entry.step == step && entry.attempt == attempt);
    }
  }
  uint32_t rank = 0;
  CHECK(ParseRecordName("rank-00012.record", &rank) && rank == 12);
  CHECK(ParseFailedName("rank-123456.failed", &rank) && rank == 123456);
  NodeRanks ranks;
  CHECK(ParseNodeRecordName("ranks-00001-00007-2.record", &ranks) && ranks.first == 1 && ranks.count() == 4);
  CHECK(ranks.Has(1) && ranks.Has(5) && ranks.Has(7) && !ranks.Has(2) && !ranks.Has(9) && !ranks.Has(0));
  CHECK_EQ(NodeRecordName(ranks), "ranks-00001-00007-2.record");
  CHECK(ParseNodeRecordName("ranks-123456-123456-1.record", &ranks) && ranks.count() == 1);
  uint64_t number = 0;
  CHECK(ParseAliveName("rank-00012-34.alive", &rank, &number) && rank == 12 && number == 34);
}

void OtherNamesAreRefused() {
  for (const char* name : {"", "step-", "step-40", "step-00000000040", "step-+000000040", "step-0000000040 ",
                           "step--000000001", "step-0000000040.partial-", "step-0000000040.partial-zz", "run.json",
                           "step-0000000040.partial-AB000000000000000000000000000000", ".trash-", "lock",
                           "step-0000000040.failed-", "step-0000000040.failed"}) {
    CHECK(ParseRunEntry(name).kind == EntryKind::kOther);
  }
  uint32_t rank = 0;
  for (const char* name :
       {"rank-3.record", "rank-00003.record.tmp", "rank-.record", "rank-00003", "rank- 0003.record"}) {
    CHECK(!ParseRecordName(name, &rank));
  }
  NodeRanks ranks;
  for (const char* name :
       {"ranks-00001-00002.record", "ranks-00001-00002-1.record.tmp", "ranks-00001-00002-0.record",
        "ranks-00001-00002-01.record", "ranks-00002-00001-1.record", "ranks-00001-00004-2.record", "ranks-1-2-1.record",
        "ranks-000001-00002-1.record", "ranks-00000-04096-1.record", "ranks-00000-999999999-1.record",
        "ranks-00001--0002-1.record", "ranks-00001-00002-1.recorder"}) {
    CHECK(!ParseNodeRecordName(name, &ranks));
  }
  uint64_t number = 0;
  for (const char* name : {"rank-00003.alive", "rank-00003-.alive", "rank-3-1.alive", "rank-00003-01.alive",
                           "rank-00003-1.alive.x", "rank-00003--1.alive", "rank-"}) {
    CHECK(!ParseAliveName(name, &rank, &number));
  }
  CHECK(IsLeftover("rank-00003-1.alive"));
  CHECK(IsLeftover("rank-00003.record.tmp") && IsLeftover("rank-00003.failed") && !IsLeftover("rank-00003.record"));
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::NamesAreThoseOfTheFormat();
  deepfreeze::ParsingUndoesMaking();
  deepfreeze::OtherNamesAreRefused();
}
