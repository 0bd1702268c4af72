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

// Where everything lies in a slot; follows from the sizes of the extents and of the private bytes alone.
struct SlotLayout {
  uint64_t private_offset = 0;
  uint64_t private_size = 0;
  uint64_t data_offset = 0;
  uint64_t data_size = 0;
  std::vector<uint64_t> places;  // of each extent, absolute

  uint64_t file_size() const { return data_offset + data_size; }
};

SlotLayout LayOutSlot(const std::vector<Extent>& extents, uint64_t private_size);

struct SlotHeader {
  Identity identity;
  uint32_t extents = 0;
  uint64_t private_offset = 0;
  uint64_t private_size = 0;
  uint64_t data_offset = 0;
  uint64_t data_size = 0;
  uint32_t table_crc = 0;
  uint32_t private_crc = 0;
};

std::string EncodeSlotTable(const std::vector<Extent>& extents, const SlotLayout& layout);
std::string EncodeSlotHeader(const SlotHeader& header);

// bytes are the first kSlotHeaderSize of a file of slot_size bytes. Everything a reader needs in order to allocate is
// compared with slot_size.
Status DecodeSlotHeader(const std::string& bytes, uint64_t slot_size, const std::string& where, SlotHeader* header);
Status DecodeSlotTable(const std::string& bytes, const SlotHeader& header, const std::string& where,
                       std::vector<Extent>* extents, std::vector<uint64_t>* places);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_FORMAT_SLOT_H_
