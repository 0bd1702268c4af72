// *.slot, as the restart after a crash reads it: a file, through OpenSlot.
#include <algorithm>

#include "base/crc32c.h"
#include "fuzz/fuzz.h"
#include "local/slot_store.h"
#include "testing/check.h"

namespace deepfreeze {

bool FuzzOne(const std::string& bytes) {
  static const TemporaryDir directory;
  static std::unique_ptr<File> file;
  const std::string path = directory.path() + "/rank-00000-0.slot";
  if (file == nullptr) CHECK_OK(Env::Posix()->Open(path, OpenMode::kTruncate, &file));
  CHECK_OK(file->Truncate(bytes.size()));
  CHECK_OK(WriteFull(file.get(), 0, bytes.data(), bytes.size()));
  WholeSlot slot;
  const Status status = OpenSlot(Env::Posix(), path, &slot);
  if (!status.ok()) {
    FUZZ_CHECK(status.code() == Code::kCorrupt && !status.message().empty());
    return false;
  }
  const uint64_t end = slot.header.data_offset + slot.header.data_size;
  CheckSortedInside(slot.extents, slot.header.identity.file_size);
  FUZZ_CHECK(slot.places.size() == slot.extents.size() && end >= slot.header.data_offset && end <= bytes.size());
  for (size_t i = 0; i < slot.places.size(); ++i) {
    FUZZ_CHECK(slot.places[i] >= slot.header.data_offset && slot.places[i] <= end);
    FUZZ_CHECK(slot.extents[i].size <= end - slot.places[i]);
  }
  const SlotLayout layout = LayOutSlot(slot.extents, slot.private_data.size());
  const std::string again = EncodeSlotHeader(slot.header) + EncodeSlotTable(slot.extents, layout) + slot.private_data;
  // Of version 1 all but the version and the header's checksum is the same.
  const size_t same = Get32(bytes.data() + 8) == kFirstVersion ? kSlotHeaderSize : 0;
  FUZZ_CHECK(bytes.compare(same, again.size() - same, again, same) == 0);
  FUZZ_CHECK(bytes.compare(slot.header.values_offset, slot.values.size(), slot.values) == 0);
  return true;
}

void Repair(bool sizes, std::string* bytes) {
  if (bytes->size() < kSlotHeaderSize) return;
  char* to = bytes->data();
  const uint64_t room = bytes->size() - kSlotHeaderSize;
  const uint64_t extents = Get32(to + 104) % (room / kSlotEntrySize + 1);
  const uint64_t left = room - kSlotEntrySize * extents;
  const uint64_t private_size = Get64(to + 128) % (left + 1);
  const uint64_t private_offset = kSlotTableOffset + kSlotEntrySize * extents;
  if (sizes) {
    Put32(to + 104, static_cast<uint32_t>(extents));
    Put32(to + 108, static_cast<uint32_t>(Get32(to + 108) % (private_size / 4 + 1)));
    Put64(to + 112, kSlotTableOffset);
    Put64(to + 120, private_offset);
    Put64(to + 128, private_size);
    Put64(to + 136, RoundUp(private_offset + private_size, 4096));
    const bool first = Get32(to + 8) == kFirstVersion;
    std::fill(to + (first ? 160 : 180), to + kSlotHeaderSize - 4, '\0');
    const uint64_t values = Get64(to + 160);
    if (!first && values <= bytes->size()) {
      const uint64_t values_size = Get64(to + 168) % (bytes->size() - values + 1);
      Put64(to + 168, values_size);
      Put32(to + 176, Crc32c(0, to + values, values_size));
    }
  }
  Put32(to + 152, Crc32c(0, to + kSlotTableOffset, kSlotEntrySize * extents));
  Put32(to + 156, Crc32c(0, to + private_offset, private_size));
  Put32(to + kSlotHeaderSize - 4, Crc32c(0, to, kSlotHeaderSize - 4));
}

}  // namespace deepfreeze
