#include "local/slot_store.h"

#include "base/crc32c.h"
#include "format/named_values.h"
#include "format/names.h"

namespace deepfreeze {
namespace {

constexpr uint32_t kOthersWrite = 022;

}  // namespace

SlotStore::SlotStore(Env* env, const std::string& local_dir, const Identity& identity, uint32_t slots)
    : env_(env),
      local_dir_(local_dir),
      user_dir_(Join(local_dir, UserDirName(env->UserId()))),
      directory_(Join(user_dir_, Hex(identity.run_id))),
      rank_(identity.rank),
      attempt_(identity.attempt),
      slots_(slots) {}

std::string SlotStore::path(uint32_t slot) const { return Join(directory_, SlotName(rank_, attempt_, slot)); }

Status SlotStore::MakeDirectory() {
  const MutexLock lock(&mutex_);
  if (directory_made_) return {};
  for (const std::string& directory : {user_dir_, directory_}) {
    DF_RETURN_IF_ERROR(env_->MakeDir(directory, 0700));
    // Other users share the node-local storage. One of them could have made the directory first, or a symbolic link.
    FileInfo info;
    DF_RETURN_IF_ERROR(env_->Stat(directory, &info));
    std::string found;
    if (!info.is_directory) {
      found = "something else";
    } else if (info.uid != env_->UserId()) {
      found = "one of user " + std::to_string(info.uid);
    } else if ((info.mode & kOthersWrite) != 0) {
      found = "one that others may write to";
    }
    if (!found.empty()) {
      return Status::FourPart(Code::kIo, directory,
                              "a directory of user " + std::to_string(env_->UserId()) + " that nobody else writes to",
                              found, "Remove it, or choose another local directory");
    }
  }
  directory_made_ = true;
  return {};
}

Status SlotStore::OpenLocked(uint32_t slot, Slot* one) {
  DF_RETURN_IF_ERROR(MakeDirectory());
  if (one->file != nullptr) return {};
  DF_RETURN_IF_ERROR(env_->Open(path(slot), OpenMode::kPrivate, &one->file));
  // Not known to be a file of this user alone before the line above.
  if (!env_->InMemory(directory_) && !env_->Open(path(slot), OpenMode::kDirect, &one->direct).ok()) one->direct.reset();
  return {};
}

// Marks the slot as half-written, which a reader sees until Finish.
Status SlotStore::MarkNotWhole(uint32_t slot) {
  const std::string zeros(kSlotHeaderSize, '\0');
  return WriteFull(file(slot), 0, zeros.data(), zeros.size());
}

Status SlotStore::Begin(uint32_t slot, uint64_t size) {
  Slot* const one = &slots_[slot];
  const MutexLock lock(&one->mutex);
  DF_RETURN_IF_ERROR(OpenLocked(slot, one));
  DF_RETURN_IF_ERROR(MarkNotWhole(slot));
  uint64_t now = 0;
  DF_RETURN_IF_ERROR(file(slot)->Size(&now));
  return now < size ? file(slot)->Allocate(size) : Status();
}

bool SlotStore::InMemory() { return MakeDirectory().ok() && env_->InMemory(directory_); }

Status SlotStore::Touch(uint32_t slot, uint64_t size, const StopWhen& stop) {
  Slot* const one = &slots_[slot];
  const MutexLock lock(&one->mutex);
  if (one->mapped == nullptr) {
    DF_RETURN_IF_ERROR(OpenLocked(slot, one));
    char* mapped = nullptr;
    DF_RETURN_IF_ERROR(one->file->Map(size, &mapped));
    one->mapped = mapped;
  }
  Status status = FindMemory(slot, one, size, stop);
  if (status.ok() || status.code() == Code::kClosed) return status;
  // The memory can't be found beforehand (an old kernel), or some is missing. Allocate tells whether there is room.
  DF_RETURN_IF_ERROR(one->file->Allocate(size));
  one->touched = size;
  return {};
}

// A direct write from small pages takes five times the processor time of one from huge pages.
Status SlotStore::FindMemory(uint32_t slot, Slot* one, uint64_t size, const StopWhen& stop) {
  bool join = join_;
  Status refused;
  Status status = PopulateHuge(env_, one->mapped, size, stop, &one->touched, &join, &refused);
  if (refused.code() == Code::kInvalid) {
    join_ = false;
    FileInfo info;
    wants_huge_pages_ = env_->Stat(path(slot), &info).ok() && info.block < kHugePage;
  }
  return status;
}

Status SlotStore::Map(uint32_t slot, uint64_t size, const StopWhen& stop, char** data) {
  DF_RETURN_IF_ERROR(Touch(slot, size, stop));
  DF_RETURN_IF_ERROR(MarkNotWhole(slot));
  Slot* const one = &slots_[slot];
  const MutexLock lock(&one->mutex);
  *data = one->mapped;
  return {};
}

Status SlotStore::Finish(uint32_t slot, const Identity& identity, const std::vector<Extent>& extents,
                         const SlotLayout& layout, const std::string& private_data, const std::string& values,
                         uint64_t values_place) {
  File* file = slots_[slot].file.get();
  const std::string table = EncodeSlotTable(extents, layout);
  SlotHeader header;
  header.identity = identity;
  header.extents = static_cast<uint32_t>(extents.size());
  header.private_offset = layout.private_offset;
  header.private_size = layout.private_size;
  header.data_offset = layout.data_offset;
  header.data_size = layout.data_size;
  header.table_crc = Crc32c(0, table.data(), table.size());
  header.private_crc = Crc32c(0, private_data.data(), private_data.size());
  if (!values.empty()) {
    header.values_offset = ValuesPlace(values_place);
    header.values_size = values.size();
    header.values_crc = Crc32c(0, values.data(), values.size());
  }
  const std::string bytes = EncodeSlotHeader(header);
  DF_RETURN_IF_ERROR(WriteFull(file, kSlotTableOffset, table.data(), table.size()));
  DF_RETURN_IF_ERROR(WriteFull(file, layout.private_offset, private_data.data(), private_data.size()));
  DF_RETURN_IF_ERROR(WriteFull(file, header.values_offset, values.data(), values.size()));
  return WriteFull(file, 0, bytes.data(), bytes.size());
}

void SlotStore::Remove(uint32_t slot) {
  Slot* const one = &slots_[slot];
  const MutexLock lock(&one->mutex);
  if (one->file == nullptr) return;
  one->mapped = nullptr;
  one->touched = 0;
  one->direct.reset();
  one->file.reset();
  // An error is ignored: nobody needs the slot's content, and the next use of the file begins by marking it not whole.
  (void)env_->Unlink(path(slot)).ok();
}

Status OpenSlot(Env* env, const std::string& path, WholeSlot* slot) {
  DF_RETURN_IF_ERROR(env->Open(path, OpenMode::kRead, &slot->file));
  File* file = slot->file.get();
  uint64_t size = 0;
  DF_RETURN_IF_ERROR(file->Size(&size));
  if (size < kSlotHeaderSize) return Malformed(path, "a whole slot", std::to_string(size) + " bytes");
  std::string bytes(kSlotHeaderSize, '\0');
  DF_RETURN_IF_ERROR(ReadFull(file, 0, bytes.data(), bytes.size()));
  DF_RETURN_IF_ERROR(DecodeSlotHeader(bytes, size, path, &slot->header));
  bytes.resize(kSlotEntrySize * uint64_t{slot->header.extents});
  DF_RETURN_IF_ERROR(ReadFull(file, kSlotTableOffset, bytes.data(), bytes.size()));
  DF_RETURN_IF_ERROR(DecodeSlotTable(bytes, slot->header, path, &slot->extents, &slot->places));
  slot->private_data.resize(slot->header.private_size);
  DF_RETURN_IF_ERROR(ReadFull(file, slot->header.private_offset, slot->private_data.data(), slot->private_data.size()));
  const uint32_t crc = Crc32c(0, slot->private_data.data(), slot->private_data.size());
  if (crc != slot->header.private_crc) {
    return Malformed(path, "checksum " + Hex32(slot->header.private_crc) + " of the private bytes", Hex32(crc));
  }
  slot->values.resize(slot->header.values_size);
  DF_RETURN_IF_ERROR(ReadFull(file, slot->header.values_offset, slot->values.data(), slot->values.size()));
  const uint32_t values_crc = Crc32c(0, slot->values.data(), slot->values.size());
  if (values_crc != slot->header.values_crc) {
    return Malformed(path, "checksum " + Hex32(slot->header.values_crc) + " of the named values", Hex32(values_crc));
  }
  return CheckNamedValues(slot->values, path);
}

}  // namespace deepfreeze
