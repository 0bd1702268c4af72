// A file of NfsEnv (testing/nfs_env.h): NfsInode is its pages in the client's cache, NfsFile a descriptor of it. For
// tests only.
#ifndef DEEPFREEZE_TESTING_NFS_FILE_H_
#define DEEPFREEZE_TESTING_NFS_FILE_H_

#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/env.h"

namespace deepfreeze {

constexpr uint64_t kNfsPage = 4096;

// What a client has of one file: pages, of which it may know all bytes or a part, and the ranges of them that it has to
// write back. All descriptors of the file in this client share it.
class NfsInode {
 public:
  NfsInode(int handle, uint64_t size) : handle_(handle), size_(size) {}
  ~NfsInode() { ::close(handle_); }
  NfsInode(const NfsInode&) = delete;
  NfsInode& operator=(const NfsInode&) = delete;

  // Empties the cache, as when the file is opened anew: writes back what is to be written, forgets the rest.
  Status Invalidate() {
    std::lock_guard<std::mutex> lock(mutex_);
    const Status status = FlushLocked();
    pages_.clear();
    return status;
  }
  void Resized(uint64_t size) {
    std::lock_guard<std::mutex> lock(mutex_);
    size_ = size;
  }
  Status Flush() {
    std::lock_guard<std::mutex> lock(mutex_);
    return FlushLocked();
  }
  // Writes back; after this nothing is written through that descriptor.
  Status Leave(const File* file) {
    std::lock_guard<std::mutex> lock(mutex_);
    const Status status = FlushLocked();
    if (writer_.get() == file) writer_ = nullptr;
    return status;
  }
  uint64_t Size(uint64_t on_server) {
    std::lock_guard<std::mutex> lock(mutex_);
    return writer_ == nullptr ? on_server : std::max(on_server, size_);
  }

  Status Write(const std::shared_ptr<File>& file, bool readable, uint64_t offset, const char* data, size_t n) {
    std::lock_guard<std::mutex> lock(mutex_);
    DF_RETURN_IF_ERROR(CheckHandle(file->path()));
    writer_ = file;
    for (size_t done = 0; done < n;) {
      const uint64_t number = (offset + done) / kNfsPage;
      const uint64_t from = (offset + done) % kNfsPage;
      const uint64_t to = std::min<uint64_t>(kNfsPage, from + n - done);
      const uint64_t known = size_ > number * kNfsPage ? std::min(kNfsPage, size_ - number * kNfsPage) : 0;
      Page& page = pages_[number];
      if (from == 0 && to == kNfsPage) page.whole = true;
      if (!page.whole && readable && known > 0 && (from > 0 || to < known)) {
        DF_RETURN_IF_ERROR(Complete(file.get(), number, &page));
      }
      page.bytes.resize(kNfsPage);
      std::memcpy(&page.bytes[from], data + done, to - from);
      page.dirty.emplace_back(page.whole ? 0 : from, page.whole ? kNfsPage : to);
      done += to - from;
      size_ = std::max(size_, number * kNfsPage + to);
    }
    return {};
  }

  Status Read(File* file, uint64_t offset, char* data, size_t n) {
    std::lock_guard<std::mutex> lock(mutex_);
    DF_RETURN_IF_ERROR(CheckHandle(file->path()));
    for (size_t done = 0; done < n;) {
      const uint64_t from = (offset + done) % kNfsPage;
      const size_t part = static_cast<size_t>(std::min<uint64_t>(kNfsPage - from, n - done));
      Page& page = pages_[(offset + done) / kNfsPage];
      if (!page.whole) DF_RETURN_IF_ERROR(Complete(file, (offset + done) / kNfsPage, &page));
      std::memcpy(data + done, &page.bytes[from], part);
      done += part;
    }
    return {};
  }

  // Past the cache.
  Status WriteDirect(File* file, uint64_t offset, const char* data, size_t n) {
    std::lock_guard<std::mutex> lock(mutex_);
    DF_RETURN_IF_ERROR(CheckHandle(file->path()));
    DF_RETURN_IF_ERROR(FlushLocked());
    pages_.erase(pages_.lower_bound(offset / kNfsPage), pages_.lower_bound((offset + n + kNfsPage - 1) / kNfsPage));
    size_ = std::max(size_, offset + n);
    return WriteFull(file, offset, data, n);
  }

 private:
  struct Page {
    std::string bytes;
    bool whole = false;                                // all of it is known
    std::vector<std::pair<uint64_t, uint64_t>> dirty;  // to be written back
  };

  Status CheckHandle(const std::string& path) const {
    struct stat info;
    if (::fstat(handle_, &info) != 0) std::abort();
    return info.st_nlink > 0 ? Status() : Status::FromErrno(ESTALE, "handle", path);
  }

  // Reads the page from the server; the ranges that are to be written back stay as they are.
  static Status Complete(File* file, uint64_t number, Page* page) {
    std::string bytes(kNfsPage, '\0');
    for (size_t at = 0, done = 1; at < kNfsPage && done > 0; at += done) {
      DF_RETURN_IF_ERROR(file->PRead(number * kNfsPage + at, &bytes[at], kNfsPage - at, &done));
    }
    for (const auto& [from, to] : page->dirty) bytes.replace(from, to - from, page->bytes, from, to - from);
    page->bytes = std::move(bytes);
    page->whole = true;
    return {};
  }

  // Writes back all dirty ranges. Those that can't be written back are lost, as on Linux.
  Status FlushLocked() {
    Status first;
    for (auto& [number, page] : pages_) {
      for (const auto& [from, to] : page.dirty) {
        const uint64_t end = std::min(size_, number * kNfsPage + to);
        const uint64_t begin = number * kNfsPage + from;
        Status status = CheckHandle(writer_->path());
        if (status.ok() && begin < end) status = WriteFull(writer_.get(), begin, &page.bytes[from], end - begin);
        if (first.ok()) first = std::move(status);
      }
      page.dirty.clear();
    }
    if (!first.ok()) pages_.clear();
    return first;
  }

  const int handle_;
  std::mutex mutex_;
  uint64_t size_;  // as this client knows it
  std::shared_ptr<File> writer_;
  std::map<uint64_t, Page> pages_;
};

// A descriptor of a file.
class NfsFile final : public File {
 public:
  NfsFile(const std::string& path, std::shared_ptr<File> base, std::shared_ptr<NfsInode> inode, bool direct)
      : File(path), base_(std::move(base)), inode_(std::move(inode)), direct_(direct) {
    size_t done = 0;
    char none;
    readable_ = base_->PRead(0, &none, 0, &done).ok();
  }
  ~NfsFile() override {
    if (base_ != nullptr) (void)inode_->Leave(base_.get()).ok();
  }

  Status PRead(uint64_t offset, void* data, size_t n, size_t* done) override {
    *done = 0;
    if (!readable_) return base_->PRead(offset, data, n, done);
    uint64_t size = 0;
    DF_RETURN_IF_ERROR(Size(&size));
    if (offset >= size) return {};
    const size_t there = static_cast<size_t>(std::min<uint64_t>(n, size - offset));
    DF_RETURN_IF_ERROR(inode_->Read(base_.get(), offset, static_cast<char*>(data), there));
    *done = there;
    return {};
  }
  Status PWrite(uint64_t offset, const void* data, size_t n, size_t* done) override {
    const char* from = static_cast<const char*>(data);
    DF_RETURN_IF_ERROR(direct_ ? inode_->WriteDirect(base_.get(), offset, from, n)
                               : inode_->Write(base_, readable_, offset, from, n));
    *done = n;
    return {};
  }
  Status Number(uint64_t* number) override { return base_->Number(number); }
  Status Size(uint64_t* size) override {
    DF_RETURN_IF_ERROR(base_->Size(size));
    *size = inode_->Size(*size);
    return {};
  }
  Status Truncate(uint64_t size) override {
    return Resize(size, [&] { return base_->Truncate(size); });
  }
  Status Allocate(uint64_t size) override {
    return Resize(size, [&] { return base_->Allocate(size); });
  }
  Status DataSync() override {
    DF_RETURN_IF_ERROR(inode_->Flush());
    return base_->DataSync();
  }
  Status Sync() override {
    DF_RETURN_IF_ERROR(inode_->Flush());
    return base_->Sync();
  }
  Status Map(uint64_t, char**) override { return Status(Code::kIo, "nothing is mapped of a network file system"); }
  void StartWriteback(uint64_t, uint64_t) override {}  // this client writes back at a sync, or when a file is closed
  Status Close() override {
    const Status flushed = inode_->Leave(base_.get());
    const std::shared_ptr<File> base = std::move(base_);
    const Status closed = base->Close();
    return flushed.ok() ? closed : flushed;
  }

 private:
  template <typename Call>
  Status Resize(uint64_t size, Call call) {
    DF_RETURN_IF_ERROR(inode_->Invalidate());
    DF_RETURN_IF_ERROR(call());
    inode_->Resized(size);
    return {};
  }

  std::shared_ptr<File> base_;
  const std::shared_ptr<NfsInode> inode_;
  const bool direct_;
  bool readable_ = false;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_TESTING_NFS_FILE_H_
