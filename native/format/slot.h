// *.slot: one rank's shard on the local tier. Bytes: docs/format.md, "Slot".
#ifndef DEEPFREEZE_FORMAT_SLOT_H_
#define DEEPFREEZE_FORMAT_SLOT_H_

#include <string>
#include <vector>

#include "format/identity.h"

namespace deepfreeze {

constexpr size_t kSlotHeaderSize = 4096;
constexpr uint64_t kSlotTableOffset = 4096;
constexpr size_t kSlotEntrySize = 32;

// The offsets in a slot, in bytes from its beginning. They follow from the sizes of the extents and of the private
// bytes alone.
struct SlotLayout {
  uint64_t private_offset = 0;
  uint64_t private_size = 0;
  uint64_t data_offset = 0;
  uint64_t data_size = 0;
  std::vector<uint64_t> places;  // where each extent begins, also from the slot's beginning

  uint64_t file_size() const { return data_offset + data_size; }
};

// REQUIRES: RecordSize accepts so many extents and private bytes; the extents lie inside a file of kMaxFileSize. Only
// their sizes matter.
SlotLayout LayOutSlot(const std::vector<Extent>& extents, uint64_t private_size);

struct SlotHeader {
  Identity identity;
  uint32_t extents = 0;  // how many
  uint64_t private_offset = 0;
  uint64_t private_size = 0;
  uint64_t data_offset = 0;
  uint64_t data_size = 0;
  uint32_t table_crc = 0;
  uint32_t private_crc = 0;
  uint64_t values_offset = 0;  // of the section of named values; 0 if it is empty
  uint64_t values_size = 0;
  uint32_t values_crc = 0;
};

// Where the named values may begin in a slot: the first multiple of 64 that is not before `end`.
uint64_t ValuesPlace(uint64_t end);

// REQUIRES: LayOutSlot has made the layout for extents of these sizes.
std::string EncodeSlotTable(const std::vector<Extent>& extents, const SlotLayout& layout);
// RETURNS kSlotHeaderSize bytes, with their checksum.
std::string EncodeSlotHeader(const SlotHeader& header);

// Reads the first kSlotHeaderSize bytes of a file of slot_size bytes; `where` is the file that messages name. RETURNS
// kCorrupt if the header is damaged, or of a slot that is not whole, or has a size that does not fit slot_size: so
// after ok a caller may allocate by the sizes in *header.
Status DecodeSlotHeader(const std::string& bytes, uint64_t slot_size, const std::string& where, SlotHeader* header);
// Reads the table, of kSlotEntrySize bytes for each extent. *places: where each extent begins in the slot. REQUIRES:
// DecodeSlotHeader has accepted the header. RETURNS kCorrupt if the table contradicts it; then *extents and *places are
// not to be used.
Status DecodeSlotTable(const std::string& bytes, const SlotHeader& header, const std::string& where,
                       std::vector<Extent>* extents, std::vector<uint64_t>* places);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_FORMAT_SLOT_H_
