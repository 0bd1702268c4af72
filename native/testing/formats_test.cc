// Golden bytes: spelled out here as docs/format.md says, not made by the code under test.
#include <cstring>

#include "base/crc32c.h"
#include "format/manifest.h"
#include "format/named_values.h"
#include "format/record.h"
#include "format/slot.h"
#include "testing/check.h"
#include "testing/values.h"

namespace deepfreeze {
namespace {

Identity Example() {
  Identity id;
  id.run_id.fill(0x11);
  id.attempt.fill(0x22);
  id.structure.fill(0x33);
  id.step = 40;
  id.rank = 1;
  id.world = 2;
  id.file_size = 0x10000;
  id.hashes = 1;
  return id;
}

std::string IdentityBytes(uint32_t extents) {
  return std::string(16, 0x11) + std::string(16, 0x22) + std::string(32, 0x33) + Little(40, 8) + Little(1, 4) +
         Little(2, 4) + Little(0x10000, 8) + Little(extents, 4) + Little(1, 4);
}

// The bytes of an example; its version has a header of `header` bytes, and `values`.
std::string RecordBytes(uint64_t version, uint64_t header, const std::string& values) {
  std::string bytes = "DFRECORD" + Little(version, 4) + Little(header, 4) + IdentityBytes(2) + Little(4, 8) +
                      Little(header + 48 + 4 + values.size() + 4, 8) + (version == 1 ? "" : Little(values.size(), 8)) +
                      Little(0x1000, 8) + Little(0x2000, 8) + Little(0xAABBCCDD, 4) + Little(0, 4) + Little(0x4000, 8) +
                      Little(5, 8) + Little(7, 4) + Little(0, 4) + "seed" + values;
  return bytes + Little(Crc32cTable(0, bytes.data(), bytes.size()), 4);
}

void RecordIsGolden() {
  const Record record{Example(), {{0x1000, 0x2000, 0xAABBCCDD}, {0x4000, 5, 7}}, "seed", UnknownValues()};
  const std::string want = RecordBytes(2, 136, UnknownValues());
  CHECK_EQ(EncodeRecord(record), want);
  Record back;
  CHECK_OK(DecodeRecord(want, "x", &back));
  CHECK_EQ(back.values, UnknownValues());
  CHECK(back.identity.SameCheckpoint(record.identity) && back.identity.rank == 1 && back.private_data == "seed");
  CHECK(back.extents.size() == 2 && back.extents[1].file_offset == 0x4000 && back.extents[0].crc == 0xAABBCCDD);
  for (size_t i = 0; i < want.size(); ++i) {
    std::string bad = want;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    CHECK(DecodeRecord(bad, "x", &back).code() == Code::kCorrupt);
    CHECK(DecodeRecord(want.substr(0, i), "x", &back).code() == Code::kCorrupt);
  }
}

void RecordOfVersion1IsReadAndWrittenAsVersion2() {
  Record back;
  CHECK_OK(DecodeRecord(RecordBytes(1, 128, ""), "x", &back));
  CHECK(back.private_data == "seed" && back.values.empty());
  CHECK_EQ(EncodeRecord(back), RecordBytes(2, 136, ""));
  CHECK(DecodeRecord(RecordBytes(1, 136, ""), "x", &back).code() == Code::kCorrupt);
  CHECK(DecodeRecord(RecordBytes(3, 136, ""), "x", &back).code() == Code::kCorrupt);
}

void NamedValuesAreOrderedAndChecked() {
  std::string_view found;
  CHECK_OK(CheckNamedValues("", "x"));
  CHECK_OK(CheckNamedValues(UnknownValues(), "x"));
  const std::string section = UnknownValues();
  CHECK(FindNamedValue(section, "from_the_future", &found) && found == "anything");
  CHECK(FindNamedValue(section, "position", &found) && found.empty());
  CHECK(!FindNamedValue(section, "posit", &found) && !FindNamedValue("", "position", &found));
  for (size_t i = 0; i < section.size(); ++i) {
    std::string bad = section;
    bad[i] = static_cast<char>(bad[i] ^ 128);
    CHECK(CheckNamedValues(bad, "x").code() == Code::kCorrupt);
    if (i > 0 && i != Value("from_the_future", "anything").size()) {
      CHECK(CheckNamedValues(section.substr(0, i), "x").code() == Code::kCorrupt);
    }
  }
  for (const std::string& wrong : {Value("b", "") + Value("a", ""), Value("a", "") + Value("a", ""), Value("", "x"),
                                   Value("A", "x"), Value(std::string(65, 'a'), "x")}) {
    CHECK(CheckNamedValues(wrong, "x").code() == Code::kCorrupt);
  }
}

void RecordWithOverlapIsRefused() {
  Record back;
  for (const auto& extents : {std::vector<Extent>{{0, 10, 0}, {9, 10, 0}}, std::vector<Extent>{{0xFFFF, 2, 0}},
                              std::vector<Extent>{{~uint64_t{0}, 2, 0}}, std::vector<Extent>{{5, 0, 0}}}) {
    CHECK(DecodeRecord(EncodeRecord({Example(), extents, "seed", ""}), "x", &back).code() == Code::kCorrupt);
  }
}

void SlotIsGolden() {
  const std::vector<Extent> extents{{0, 100, 1}, {0x1000, 0x1000, 2}, {0x3000, 60, 3}, {0x4000, 64, 4}};
  const SlotLayout layout = LayOutSlot(extents, 10);
  CHECK(layout.private_offset == 4096 + 128 && layout.data_offset == 8192);
  CHECK((layout.places == std::vector<uint64_t>{8192, 12288, 16384, 16448}));
  CHECK_EQ(layout.data_size, 16448u + 64 - 8192);
  const std::string table = EncodeSlotTable(extents, layout);
  CHECK_EQ(table.substr(32, 32),
           Little(0x1000, 8) + Little(0x1000, 8) + Little(12288, 8) + Little(2, 4) + Little(0, 4));
  SlotHeader header;
  header.identity = Example();
  header.extents = 4;
  header.private_offset = layout.private_offset;
  header.private_size = 10;
  header.data_offset = layout.data_offset;
  header.data_size = layout.data_size;
  header.table_crc = Crc32c(0, table.data(), table.size());
  header.private_crc = 9;
  header.values_offset = ValuesPlace(layout.file_size() + 1);
  header.values_size = 20;
  header.values_crc = 8;
  CHECK_EQ(header.values_offset, 16576u);
  std::string want = "DFSLOT\r\n" + Little(2, 4) + Little(4096, 4) + IdentityBytes(4) + Little(4096, 8) +
                     Little(4096 + 128, 8) + Little(10, 8) + Little(8192, 8) + Little(layout.data_size, 8) +
                     Little(header.table_crc, 4) + Little(9, 4) + Little(16576, 8) + Little(20, 8) + Little(8, 4);
  want.resize(4092, '\0');
  want += Little(Crc32cTable(0, want.data(), want.size()), 4);
  CHECK_EQ(EncodeSlotHeader(header), want);

  SlotHeader back;
  std::vector<Extent> extents_back;
  std::vector<uint64_t> places;
  const uint64_t size = 16576 + 20;
  CHECK_OK(DecodeSlotHeader(want, size, "x", &back));
  CHECK(back.values_offset == 16576 && back.values_size == 20 && back.values_crc == 8);
  CHECK_OK(DecodeSlotTable(table, back, "x", &extents_back, &places));
  CHECK(places == layout.places && extents_back[3].crc == 4);
  CHECK(!DecodeSlotHeader(want, size - 1, "x", &back).ok());
  CHECK(!DecodeSlotHeader(std::string(4096, '\0'), size, "x", &back).ok());
  for (size_t i = 0; i < want.size(); i += 3) {
    std::string bad = want;
    bad[i] = static_cast<char>(bad[i] ^ 64);
    CHECK(DecodeSlotHeader(bad, size, "x", &back).code() == Code::kCorrupt);
  }
  // Version 1 has zeros in place of the values.
  want.replace(8, 4, Little(1, 4)).replace(160, 20, 20, '\0').resize(4092);
  want += Little(Crc32cTable(0, want.data(), want.size()), 4);
  CHECK_OK(DecodeSlotHeader(want, layout.file_size(), "x", &back));
  CHECK(back.values_offset == 0 && back.values_size == 0 && back.private_crc == 9);
}

void ManifestIsGolden() {
  Manifest manifest;
  manifest.identity = Example();
  manifest.identity.hashes = 0;
  manifest.diverged = 3;
  manifest.created = 1795232158;  // 2026-11-21T03:35:58Z
  manifest.values = "{\"from the future\":[1,\"}\"]}";
  manifest.records = {{0, 100, 2, 8, 0, 196, 0x0000abcd}, {1, 65436, 1, 0, 30, 194, 0xffffffff}};
  std::string want =
      "{\n"
      "  \"format\": 2,\n"
      "  \"step\": 40,\n"
      "  \"attempt\": \"22222222222222222222222222222222\",\n"
      "  \"run_id\": \"11111111111111111111111111111111\",\n"
      "  \"structure\": \"3333333333333333333333333333333333333333333333333333333333333333\",\n"
      "  \"world_size\": 2,\n"
      "  \"file_size\": 65536,\n"
      "  \"created\": \"2026-11-21T03:35:58Z\",\n"
      "  \"diverged\": 3,\n"
      "  \"values\": {\"from the future\":[1,\"}\"]},\n"
      "  \"records\": [\n"
      "    {\"rank\": 0, \"bytes\": 100, \"extents\": 2, \"private\": 8, \"values\": 0, \"size\": 196, "
      "\"crc32c\": \"0000abcd\"},\n"
      "    {\"rank\": 1, \"bytes\": 65436, \"extents\": 1, \"private\": 0, \"values\": 30, \"size\": 194, "
      "\"crc32c\": \"ffffffff\"}\n"
      "  ],\n";
  want += "  \"crc32c\": \"" + Hex32(Crc32cTable(0, want.data(), want.size())) + "\"\n}\n";
  CHECK_EQ(EncodeManifest(manifest), want);
  Manifest back;
  CHECK_OK(DecodeManifest(want, "x", &back));
  CHECK(back.created == manifest.created && back.diverged == 3 && back.records.size() == 2 &&
        back.identity.SameCheckpoint(manifest.identity) && back.values == manifest.values && back.version == 2);
  for (size_t i = 0; i < want.size(); ++i) {
    std::string bad = want;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    CHECK(DecodeManifest(bad, "x", &back).code() == Code::kCorrupt);
    CHECK(DecodeManifest(want.substr(0, i), "x", &back).code() == Code::kCorrupt);
  }
}

void ManifestValuesComeFromARecord() {
  std::string values = "{}";
  CHECK_OK(TakeManifestValues(UnknownValues(), "x", &values));
  CHECK_EQ(values, "{}");
  CHECK_OK(TakeManifestValues(Value("manifest", "{\"epoch\":1}") + Value("position", ""), "x", &values));
  CHECK_EQ(values, "{\"epoch\":1}");
  for (const char* bad : {"", "{", "[]", "{}\n", "{\n}", "{\"\xc3\xa9\"}", "x{}"}) {
    CHECK(TakeManifestValues(Value("manifest", bad), "x", &values).code() == Code::kCorrupt);
  }
  CHECK_EQ(values, "{\"epoch\":1}");
}

void ManifestOfVersion1IsRead() {
  Manifest manifest;
  manifest.version = 1;
  manifest.identity = Example();
  manifest.identity.hashes = 0;
  manifest.created = 1795232158;
  manifest.records = {{0, 100, 2, 8, 0, 188, 0x0000abcd}, {1, 65436, 1, 0, 0, 156, 0xffffffff}};
  const std::string bytes = EncodeManifest(manifest);
  CHECK(bytes.find("values") == std::string::npos && bytes.find("\"format\": 1,\n") == 4);
  Manifest back;
  CHECK_OK(DecodeManifest(bytes, "x", &back));
  CHECK(back.version == 1 && back.values == "{}" && back.records[0].size == 188);
  manifest.records[0].size = 196;
  CHECK(DecodeManifest(EncodeManifest(manifest), "x", &back).code() == Code::kCorrupt);
}

void CoverageFindsGapsAndOverlaps() {
  CHECK_OK(CheckCoverage({{50, 50, 0}, {0, 50, 0}}, 100, "x"));
  CHECK(!CheckCoverage({{0, 50, 0}, {51, 49, 0}}, 100, "x").ok());
  CHECK(!CheckCoverage({{0, 51, 0}, {50, 50, 0}}, 100, "x").ok());
  CHECK(!CheckCoverage({{0, 99, 0}}, 100, "x").ok());
  CHECK(!CheckCoverage({}, 1, "x").ok());
}

}  // namespace
}  // namespace deepfreeze

int main() {
  deepfreeze::RecordIsGolden();
  deepfreeze::RecordOfVersion1IsReadAndWrittenAsVersion2();
  deepfreeze::NamedValuesAreOrderedAndChecked();
  deepfreeze::RecordWithOverlapIsRefused();
  deepfreeze::SlotIsGolden();
  deepfreeze::ManifestIsGolden();
  deepfreeze::ManifestValuesComeFromARecord();
  deepfreeze::ManifestOfVersion1IsRead();
  deepfreeze::CoverageFindsGapsAndOverlaps();
}
