#include "format/slot.h"

#include <cstring>

#include "base/crc32c.h"
#include "format/record.h"

namespace deepfreeze {
namespace {

constexpr char kMagic[] = "DFSLOT\r\n";
constexpr uint64_t kPage = 4096;
constexpr uint64_t kLine = 64;

// Whether the named values lie behind the data. The data is known to end inside of the slot.
bool ValuesFit(const SlotHeader& header, uint64_t slot_size) {
  if (header.values_size == 0) return header.values_offset == 0 && header.values_crc == 0;
  return header.values_offset % kLine == 0 && header.values_offset >= header.data_offset + header.data_size &&
         header.values_offset <= slot_size && header.values_size <= slot_size - header.values_offset;
}

}  // namespace

SlotLayout LayOutSlot(const std::vector<Extent>& extents, uint64_t private_size) {
  SlotLayout layout;
  layout.private_offset = kSlotTableOffset + kSlotEntrySize * extents.size();
  layout.private_size = private_size;
  layout.data_offset = RoundUp(layout.private_offset + private_size, kPage);
  layout.places.reserve(extents.size());
  uint64_t end = layout.data_offset;
  for (const Extent& extent : extents) {
    const uint64_t place = RoundUp(end, extent.size >= kPage ? kPage : kLine);
    layout.places.push_back(place);
    end = place + extent.size;
  }
  layout.data_size = end - layout.data_offset;
  return layout;
}

uint64_t ValuesPlace(uint64_t end) { return RoundUp(end, kLine); }

std::string EncodeSlotTable(const std::vector<Extent>& extents, const SlotLayout& layout) {
  std::string table(kSlotEntrySize * extents.size(), '\0');
  char* entry = table.data();
  for (size_t i = 0; i < extents.size(); ++i, entry += kSlotEntrySize) {
    Put64(entry, extents[i].file_offset);
    Put64(entry + 8, extents[i].size);
    Put64(entry + 16, layout.places[i]);
    Put32(entry + 24, extents[i].crc);
  }
  return table;
}

std::string EncodeSlotHeader(const SlotHeader& header) {
  std::string bytes(kSlotHeaderSize, '\0');
  char* to = bytes.data();
  std::memcpy(to, kMagic, 8);
  Put32(to + 8, kFormatVersion);
  Put32(to + 12, kSlotHeaderSize);
  EncodeIdentity(header.identity, header.extents, to + kIdentityOffset);
  Put64(to + 112, kSlotTableOffset);
  Put64(to + 120, header.private_offset);
  Put64(to + 128, header.private_size);
  Put64(to + 136, header.data_offset);
  Put64(to + 144, header.data_size);
  Put32(to + 152, header.table_crc);
  Put32(to + 156, header.private_crc);
  Put64(to + 160, header.values_offset);
  Put64(to + 168, header.values_size);
  Put32(to + 176, header.values_crc);
  Put32(to + kSlotHeaderSize - 4, Crc32c(0, to, kSlotHeaderSize - 4));
  return bytes;
}

Status DecodeSlotHeader(const std::string& bytes, uint64_t slot_size, const std::string& where, SlotHeader* header) {
  const char* from = bytes.data();
  if (bytes.size() != kSlotHeaderSize || std::memcmp(from, kMagic, 8) != 0) {
    return Malformed(where, "a whole slot", "a slot that was being written, or another file");
  }
  const uint32_t version = Get32(from + 8);
  DF_RETURN_IF_ERROR(CheckVersion(version, where));
  if (Get32(from + 12) != kSlotHeaderSize) {
    return Malformed(where, "a header of 4096 bytes", std::to_string(Get32(from + 12)));
  }
  const uint32_t crc = Crc32c(0, from, kSlotHeaderSize - 4);
  if (Get32(from + kSlotHeaderSize - 4) != crc) {
    return Malformed(where, "header checksum " + Hex32(Get32(from + kSlotHeaderSize - 4)), Hex32(crc));
  }
  DF_RETURN_IF_ERROR(DecodeIdentity(from + kIdentityOffset, where, &header->identity, &header->extents));
  header->private_offset = Get64(from + 120);
  header->private_size = Get64(from + 128);
  header->data_offset = Get64(from + 136);
  header->data_size = Get64(from + 144);
  header->table_crc = Get32(from + 152);
  header->private_crc = Get32(from + 156);
  size_t end = 160;  // of the fields that the version has
  header->values_offset = header->values_size = header->values_crc = 0;
  if (version != kFirstVersion) {
    header->values_offset = Get64(from + 160);
    header->values_size = Get64(from + 168);
    header->values_crc = Get32(from + 176);
    end = 180;
  }
  bool zero = true;
  for (size_t i = end; i < kSlotHeaderSize - 4; ++i) zero = zero && from[i] == 0;
  // Refuses a slot whose record would be too large to be read. This also bounds how much memory the reader of a sparse
  // file with wrong sizes allocates.
  uint64_t record_size = 0;
  const bool fits = RecordSize(header->extents, header->private_size, header->values_size, &record_size) &&
                    uint64_t{header->identity.hashes} * 4 <= header->private_size && header->data_size <= slot_size &&
                    header->data_offset <= slot_size - header->data_size && ValuesFit(*header, slot_size);
  if (!zero || !fits || Get64(from + 112) != kSlotTableOffset ||
      header->private_offset != kSlotTableOffset + kSlotEntrySize * uint64_t{header->extents} ||
      header->data_offset != RoundUp(header->private_offset + header->private_size, kPage)) {
    return Malformed(where, "offsets that agree with a file of " + std::to_string(slot_size) + " bytes", "others");
  }
  return {};
}

Status DecodeSlotTable(const std::string& bytes, const SlotHeader& header, const std::string& where,
                       std::vector<Extent>* extents, std::vector<uint64_t>* places) {
  const uint32_t crc = Crc32c(0, bytes.data(), bytes.size());
  if (bytes.size() != kSlotEntrySize * uint64_t{header.extents} || crc != header.table_crc) {
    return Malformed(where, "table checksum " + Hex32(header.table_crc), Hex32(crc));
  }
  extents->clear();
  places->clear();
  const char* entry = bytes.data();
  for (uint32_t i = 0; i < header.extents; ++i, entry += kSlotEntrySize) {
    extents->push_back(Extent{Get64(entry), Get64(entry + 8), Get32(entry + 24)});
    places->push_back(Get64(entry + 16));
    if (Get32(entry + 28) != 0) return Malformed(where, "zero after a table entry", "something else");
  }
  DF_RETURN_IF_ERROR(CheckExtents(*extents, header.identity.file_size, where));
  const SlotLayout layout = LayOutSlot(*extents, header.private_size);
  if (*places != layout.places || layout.data_size != header.data_size) {
    return Malformed(where, "extents at the places the format gives them", "other places");
  }
  return {};
}

}  // namespace deepfreeze
