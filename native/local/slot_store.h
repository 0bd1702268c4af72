// The slots of one rank of one attempt on the local tier: files that are kept and written again, because fresh pages
// cost seven times as much as touched ones.
//
// A slot is written as Begin, any number of Write calls, Finish. Between Begin and Finish the slot is not whole,
// whatever happens to the process. Different slots may be used by different threads at once; of one slot, Write and
// Read only.
#ifndef DEEPFREEZE_LOCAL_SLOT_STORE_H_
#define DEEPFREEZE_LOCAL_SLOT_STORE_H_

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/env.h"
#include "format/slot.h"

namespace deepfreeze {

class SlotStore {
 public:
  // Nothing is made on disk before the first Begin.
  SlotStore(Env* env, const std::string& local_dir, const Identity& identity, uint32_t slots);

  const std::string& directory() const { return directory_; }
  std::string path(uint32_t slot) const;

  // Makes the file if need be, reserves its blocks, and marks it as not whole.
  Status Begin(uint32_t slot, uint64_t size);
  File* file(uint32_t slot) { return slots_[slot].file.get(); }

  // Whether slots are memory, so that what is to be in one can be put there at once. Makes the directory.
  bool InMemory();
  // As Begin; *data is where the file lies in memory, always at the same place. One size for all calls.
  Status Map(uint32_t slot, uint64_t size, char** data);
  // Does beforehand what takes long in Map. May overlap Map of the same slot.
  Status Touch(uint32_t slot, uint64_t size);

  // Writes private bytes, table and, last of all, the header.
  Status Finish(uint32_t slot, const Identity& identity, const std::vector<Extent>& extents, const SlotLayout& layout,
                const std::string& private_data);

  // Closes and removes the file, if this store made or opened it. May overlap Touch of the same slot.
  void Remove(uint32_t slot);
  // Closes the file and leaves it.
  void Close(uint32_t slot) { slots_[slot].file.reset(); }

 private:
  struct Slot {
    std::unique_ptr<File> file;
    char* mapped = nullptr;
  };

  Status MakeDirectory();
  Status Open(uint32_t slot);
  Status MarkNotWhole(uint32_t slot);

  Env* const env_;
  const std::string local_dir_;
  const std::string user_dir_;
  const std::string directory_;
  const uint32_t rank_;
  const Id attempt_;
  std::mutex mutex_;  // guards making, mapping and removing, beside which Touch may run
  bool directory_made_ = false;
  std::vector<Slot> slots_;
};

// Reads and checks header, table and private bytes of a slot that may have been left by another process. The bytes of
// the extents are not read.
struct WholeSlot {
  std::unique_ptr<File> file;
  SlotHeader header;
  std::vector<Extent> extents;
  std::vector<uint64_t> places;
  std::string private_data;
};
Status OpenSlot(Env* env, const std::string& path, WholeSlot* slot);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_LOCAL_SLOT_STORE_H_
