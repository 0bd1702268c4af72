#include "base/counting_env.h"

#include <utility>

namespace deepfreeze {
namespace {

class CountingFile final : public File {
 public:
  CountingFile(std::unique_ptr<File> base, PlaceCounters* place)
      : File(base->path()), base_(std::move(base)), place_(place) {}

  Status PRead(uint64_t offset, void* data, size_t n, size_t* done) override {
    Status status = base_->PRead(offset, data, n, done);
    if (status.ok()) place_->read_bytes.Add(*done);
    return status;
  }
  Status PWrite(uint64_t offset, const void* data, size_t n, size_t* done) override {
    const bool direct = base_->Direct();
    Status status = base_->PWrite(offset, data, n, done);
    // The file system may refuse the first direct write: then these bytes have gone through the cache.
    if (status.ok()) (direct && base_->Direct() ? place_->direct_bytes : place_->cached_bytes).Add(*done);
    return status;
  }
  bool Direct() const override { return base_->Direct(); }
  Status Size(uint64_t* size) override { return base_->Size(size); }
  Status Number(uint64_t* number) override { return base_->Number(number); }
  Status Truncate(uint64_t size) override {
    place_->metadata.Add();
    return base_->Truncate(size);
  }
  Status Allocate(uint64_t size) override {
    place_->metadata.Add();
    return base_->Allocate(size);
  }
  Status DataSync() override {
    place_->syncs.Add();
    return base_->DataSync();
  }
  Status Sync() override {
    place_->syncs.Add();
    return base_->Sync();
  }
  Status Map(uint64_t size, char** data) override { return base_->Map(size, data); }
  void StartWriteback(uint64_t offset, uint64_t n) override { base_->StartWriteback(offset, n); }
  Status Close() override { return base_->Close(); }

 private:
  const std::unique_ptr<File> base_;
  PlaceCounters* const place_;
};

}  // namespace

std::unique_ptr<File> Counting(std::unique_ptr<File> file, PlaceCounters* place) {
  return std::make_unique<CountingFile>(std::move(file), place);
}

CountingEnv::CountingEnv(Env* base, std::string local_dir, Counters* counters)
    : base_(base), local_(std::move(local_dir)), counters_(counters) {}

PlaceCounters* CountingEnv::Of(const std::string& path) const {
  const size_t n = local_.size();
  const bool local = n > 0 && path.compare(0, n, local_) == 0 && (path.size() == n || path[n] == '/');
  return local ? &counters_->local : &counters_->external;
}

Status CountingEnv::Open(const std::string& path, OpenMode mode, std::unique_ptr<File>* file) {
  PlaceCounters* place = Of(path);
  place->metadata.Add();
  DF_RETURN_IF_ERROR(base_->Open(path, mode, file));
  *file = Counting(std::move(*file), place);
  return {};
}

Status CountingEnv::Stat(const std::string& path, FileInfo* info) {
  Of(path)->metadata.Add();
  return base_->Stat(path, info);
}

Status CountingEnv::List(const std::string& path, std::vector<std::string>* names, bool* exists) {
  PlaceCounters* place = Of(path);
  place->lists.Add();
  Status status = base_->List(path, names, exists);
  if (status.ok()) place->names.Add(names->size());
  return status;
}

Status CountingEnv::Rename(const std::string& from, const std::string& to) {
  Of(to)->metadata.Add();
  return base_->Rename(from, to);
}

Status CountingEnv::MakeDir(const std::string& path, uint32_t mode) {
  Of(path)->metadata.Add();
  return base_->MakeDir(path, mode);
}

Status CountingEnv::Unlink(const std::string& path) {
  Of(path)->metadata.Add();
  return base_->Unlink(path);
}

Status CountingEnv::RemoveDir(const std::string& path) {
  Of(path)->metadata.Add();
  return base_->RemoveDir(path);
}

Status CountingEnv::SyncDir(const std::string& path) {
  Of(path)->syncs.Add();
  return base_->SyncDir(path);
}

Status CountingEnv::Refresh(const std::string& directory) {
  Of(directory)->metadata.Add();
  return base_->Refresh(directory);
}

}  // namespace deepfreeze
