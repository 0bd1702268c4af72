// The slots of one rank of one attempt on the local tier. A slot is a file that is written again for one checkpoint
// after the other, because memory of fresh pages costs seven times as much as touched memory.
//
// To fill a slot call Begin (or Map), write the extents through file() (or to the mapped memory), then call Finish.
// From Begin until Finish the slot's header says that it is not whole, whenever the process dies. Different slots may
// be used by different threads at once, and none waits for another's. For one slot, only reads and writes through
// file() may be made by several threads.
#ifndef DEEPFREEZE_LOCAL_SLOT_STORE_H_
#define DEEPFREEZE_LOCAL_SLOT_STORE_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/pages.h"
#include "format/slot.h"

namespace deepfreeze {

class SlotStore {
 public:
  // REQUIRES: env outlives this. Makes nothing on the disk; the first call below makes the directory.
  SlotStore(Env* env, const std::string& local_dir, const Identity& identity, uint32_t slots);

  const std::string& directory() const { return directory_; }
  std::string path(uint32_t slot) const;

  // Makes the file if it is missing, reserves blocks for `size` bytes, and marks the slot as not whole.
  Status Begin(uint32_t slot, uint64_t size);
  // The slot's file; null before the first Begin, Map or Touch. Owned by this store.
  File* file(uint32_t slot) { return slots_[slot].file.get(); }

  // The same file opened with kDirect, for data on a disk. Null where the file system opens none, and in memory.
  File* direct(uint32_t slot) { return slots_[slot].direct.get(); }

  // Whether slots are memory, so that captures can be put straight into them with Map. Makes the directory.
  bool InMemory();
  // As Begin. *data is the memory of the whole file, at the same address for every call of one slot. `size` must be the
  // same in all calls. kClosed: `stop` has said so before all memory was found.
  Status Map(uint32_t slot, uint64_t size, const StopWhen& stop, char** data);
  // Does the slow part of Map (making the file and finding its memory) beforehand. May overlap Map of the same slot,
  // which then waits. After kClosed the next call goes on where this one has stopped.
  Status Touch(uint32_t slot, uint64_t size, const StopWhen& stop);
  // Whether the memory of mapped slots is in small pages, and would be in huge ones with another mount option.
  bool WantsHugePages() const { return wants_huge_pages_; }

  // Writes the private bytes, the named values, the table and, last of all, the header: the slot is whole then. The
  // values lie at byte values_place or behind it; the data must end before.
  Status Finish(uint32_t slot, const Identity& identity, const std::vector<Extent>& extents, const SlotLayout& layout,
                const std::string& private_data, const std::string& values, uint64_t values_place);

  // Closes and deletes the file, if this store has opened it. May overlap Touch of the same slot.
  void Remove(uint32_t slot);
  // Closes the file and keeps it on the disk.
  void Close(uint32_t slot) {
    slots_[slot].direct.reset();
    slots_[slot].file.reset();
  }

 private:
  struct Slot {
    Mutex mutex;  // of making, mapping, touching and removing: Touch may run at the same time
    // Set while the mutex is held, and never again until Remove or Close: whoever fills the slot reads them without it.
    std::unique_ptr<File> file;
    std::unique_ptr<File> direct;
    char* mapped GUARDED_BY(mutex) = nullptr;
    uint64_t touched GUARDED_BY(mutex) = 0;  // bytes of the mapping whose memory is found
  };

  Status MakeDirectory();
  Status FindMemory(uint32_t slot, Slot* one, uint64_t size, const StopWhen& stop) REQUIRES(one->mutex);
  // Opens the file of slot number `slot`, which is *one.
  Status OpenLocked(uint32_t slot, Slot* one) REQUIRES(one->mutex);
  Status MarkNotWhole(uint32_t slot);

  Env* const env_;
  const std::string local_dir_;
  const std::string user_dir_;
  const std::string directory_;
  const uint32_t rank_;
  const Id attempt_;
  Mutex mutex_;
  bool directory_made_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> join_{true};  // whether the system makes huge pages, as far as is known
  std::atomic<bool> wants_huge_pages_{false};
  std::vector<Slot> slots_;
};

// A whole slot, which another process may have left.
struct WholeSlot {
  std::unique_ptr<File> file;
  SlotHeader header;
  std::vector<Extent> extents;
  std::vector<uint64_t> places;  // where each extent begins in the file
  std::string private_data;
  std::string values;  // the section of named values
};
// Opens a slot, and reads and checks its header, table, private bytes and named values; the bytes of the extents are
// not read. kCorrupt if the slot is not whole.
Status OpenSlot(Env* env, const std::string& path, WholeSlot* slot);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_LOCAL_SLOT_STORE_H_
