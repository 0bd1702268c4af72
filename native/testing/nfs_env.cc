#include "testing/nfs_env.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace deepfreeze {
namespace {

constexpr uint64_t kPage = 4096;

// Where a directory is now. ESTALE: it was removed.
Status PathOf(int directory, const std::string& called, std::string* path) {
  struct stat info;
  char target[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(directory);
  const ssize_t n = ::readlink(link.c_str(), target, sizeof(target));
  if (n < 0 || ::fstat(directory, &info) != 0) std::abort();  // not a test of this system's
  if (info.st_nlink == 0) return Status::FromErrno(ESTALE, "lookup", called);
  path->assign(target, static_cast<size_t>(n));
  return {};
}

// What was to be removed is not there.
Status Gone(const Status& status) { return status.error() == ENOENT ? Status() : status; }

std::string Parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

// What a client holds of one file: pages, of which some are all known and some only in part, and what of them is to be
// written back. All descriptors of the client share it.
class NfsInode {
 public:
  NfsInode(int handle, uint64_t size) : handle_(handle), size_(size) {}
  ~NfsInode() { ::close(handle_); }
  NfsInode(const NfsInode&) = delete;
  NfsInode& operator=(const NfsInode&) = delete;

  // The file is open no more, or opened anew: what was cached is asked of the server again.
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
  // Nothing is written through that descriptor any more.
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
      const uint64_t number = (offset + done) / kPage;
      const uint64_t from = (offset + done) % kPage;
      const uint64_t to = std::min<uint64_t>(kPage, from + n - done);
      const uint64_t known = size_ > number * kPage ? std::min(kPage, size_ - number * kPage) : 0;
      Page& page = pages_[number];
      if (from == 0 && to == kPage) page.whole = true;
      if (!page.whole && readable && known > 0 && (from > 0 || to < known)) {
        DF_RETURN_IF_ERROR(Complete(file.get(), number, &page));
      }
      page.bytes.resize(kPage);
      std::memcpy(&page.bytes[from], data + done, to - from);
      page.dirty.emplace_back(page.whole ? 0 : from, page.whole ? kPage : to);
      done += to - from;
      size_ = std::max(size_, number * kPage + to);
    }
    return {};
  }

  Status Read(File* file, uint64_t offset, char* data, size_t n) {
    std::lock_guard<std::mutex> lock(mutex_);
    DF_RETURN_IF_ERROR(CheckHandle(file->path()));
    for (size_t done = 0; done < n;) {
      const uint64_t from = (offset + done) % kPage;
      const size_t part = static_cast<size_t>(std::min<uint64_t>(kPage - from, n - done));
      Page& page = pages_[(offset + done) / kPage];
      if (!page.whole) DF_RETURN_IF_ERROR(Complete(file, (offset + done) / kPage, &page));
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
    pages_.erase(pages_.lower_bound(offset / kPage), pages_.lower_bound((offset + n + kPage - 1) / kPage));
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

  // Reads the page from the server, around what is to be written back.
  static Status Complete(File* file, uint64_t number, Page* page) {
    std::string bytes(kPage, '\0');
    for (size_t at = 0, done = 1; at < kPage && done > 0; at += done) {
      DF_RETURN_IF_ERROR(file->PRead(number * kPage + at, &bytes[at], kPage - at, &done));
    }
    for (const auto& [from, to] : page->dirty) bytes.replace(from, to - from, page->bytes, from, to - from);
    page->bytes = std::move(bytes);
    page->whole = true;
    return {};
  }

  // What can't be written back is lost, as with Linux.
  Status FlushLocked() {
    Status first;
    for (auto& [number, page] : pages_) {
      for (const auto& [from, to] : page.dirty) {
        const uint64_t end = std::min(size_, number * kPage + to);
        const uint64_t begin = number * kPage + from;
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

namespace {

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

}  // namespace

NfsEnv::NfsEnv(Env* base, std::string root) : base_(base), root_(std::move(root)) {}

NfsEnv::~NfsEnv() {
  for (const auto& [path, entry] : entries_) {
    if (entry.directory >= 0) ::close(entry.directory);
  }
}

void NfsEnv::Advance(uint64_t seconds) {
  std::lock_guard<std::mutex> lock(mutex_);
  advanced_us_ += seconds * 1000000;
}

void NfsEnv::LoseReplies(bool lose) {
  std::lock_guard<std::mutex> lock(mutex_);
  lose_replies_ = lose;
}

uint64_t NfsEnv::NowMicros() {
  std::lock_guard<std::mutex> lock(mutex_);
  return NowLocked();
}

bool NfsEnv::Mounted(const std::string& path) const {
  return path.compare(0, root_.size(), root_) == 0 && (path.size() == root_.size() || path[root_.size()] == '/');
}

const NfsEnv::Entry* NfsEnv::RecallLocked(const std::string& path) {
  const auto found = entries_.find(path);
  if (found == entries_.end()) return nullptr;
  if (NowLocked() - found->second.since_us < kRemembersSeconds * 1000000) return &found->second;
  ForgetLocked(path);
  return nullptr;
}

void NfsEnv::ForgetLocked(const std::string& path) {
  const std::string below = path + "/";
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool goes = it->first == path || it->first.compare(0, below.size(), below) == 0;
    if (goes && it->second.directory >= 0) ::close(it->second.directory);
    it = goes ? entries_.erase(it) : std::next(it);
  }
}

void NfsEnv::ForgetNamesInLocked(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& [path, entry] : entries_) {
    if (Parent(path) == directory) names.push_back(path);
  }
  for (const std::string& name : names) ForgetLocked(name);
}

void NfsEnv::RememberAbsentLocked(const std::string& path) {
  ForgetLocked(path);
  entries_[path] = Entry{-1, NowLocked()};
}

Status NfsEnv::FindDirectoryLocked(const std::string& path, std::string* real) {
  if (path == root_) {
    *real = root_;
    return {};
  }
  if (const Entry* entry = RecallLocked(path)) {
    if (entry->directory < 0) return Status::FromErrno(ENOENT, "lookup", path);
    const Status found = PathOf(entry->directory, path, real);
    if (!found.ok()) ForgetLocked(path);  // the client asks the server from now on
    return found;
  }
  DF_RETURN_IF_ERROR(FindLocked(path, real));
  const int directory = ::open(real->c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) {
    const int error = errno;
    if (error == ENOENT) RememberAbsentLocked(path);
    return Status::FromErrno(error, "lookup", path);
  }
  entries_[path] = Entry{directory, NowLocked()};
  return {};
}

Status NfsEnv::FindLocked(const std::string& path, std::string* real) {
  const std::string parent = Parent(path);
  DF_RETURN_IF_ERROR(FindDirectoryLocked(parent, real));
  *real += path.substr(parent.size());
  return {};
}

Status NfsEnv::Open(const std::string& path, OpenMode mode, std::unique_ptr<File>* file) {
  if (!Mounted(path)) return base_->Open(path, mode, file);
  std::lock_guard<std::mutex> lock(mutex_);
  std::string real;
  DF_RETURN_IF_ERROR(FindLocked(path, &real));
  const bool makes = mode != OpenMode::kRead;
  const Entry* entry = RecallLocked(path);
  if (!makes && entry != nullptr && entry->directory < 0) return Status::FromErrno(ENOENT, "open", path);
  std::unique_ptr<File> base;
  const Status opened = base_->Open(real, mode, &base);
  if (opened.error() == ENOENT && !makes) RememberAbsentLocked(path);
  DF_RETURN_IF_ERROR(opened);
  if (makes) ForgetLocked(path);
  uint64_t size = 0;
  DF_RETURN_IF_ERROR(base->Size(&size));
  struct stat info;
  const int handle = ::open(real.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (handle < 0 || ::fstat(handle, &info) != 0) {
    const int error = errno;
    if (handle >= 0) ::close(handle);
    return Status::FromErrno(error, "open", path);
  }
  std::weak_ptr<NfsInode>& known = inodes_[{info.st_dev, info.st_ino}];
  std::shared_ptr<NfsInode> inode = known.lock();
  if (inode == nullptr) {
    known = inode = std::make_shared<NfsInode>(handle, size);
  } else {
    ::close(handle);
    DF_RETURN_IF_ERROR(inode->Invalidate());
    inode->Resized(size);
  }
  *file = std::make_unique<NfsFile>(path, std::move(base), std::move(inode), mode == OpenMode::kDirect);
  return {};
}

Status NfsEnv::Stat(const std::string& path, FileInfo* info) {
  if (!Mounted(path)) return base_->Stat(path, info);
  std::lock_guard<std::mutex> lock(mutex_);
  *info = FileInfo();
  std::string real;
  const Status found = path == root_ ? FindDirectoryLocked(path, &real) : FindLocked(path, &real);
  if (found.error() == ENOENT) return {};
  DF_RETURN_IF_ERROR(found);
  const Entry* entry = RecallLocked(path);
  if (entry != nullptr && entry->directory < 0) return {};
  if (entry != nullptr) DF_RETURN_IF_ERROR(FindDirectoryLocked(path, &real));
  DF_RETURN_IF_ERROR(base_->Stat(real, info));
  if (!info->exists) RememberAbsentLocked(path);
  return {};
}

Status NfsEnv::OpenDirectoryLocked(const std::string& path, std::string* real) {
  DF_RETURN_IF_ERROR(FindDirectoryLocked(path, real));
  ForgetNamesInLocked(path);
  return {};
}

Status NfsEnv::List(const std::string& path, std::vector<std::string>* names, bool* exists) {
  if (!Mounted(path)) return base_->List(path, names, exists);
  std::lock_guard<std::mutex> lock(mutex_);
  names->clear();
  *exists = false;
  std::string real;
  const Status found = OpenDirectoryLocked(path, &real);
  if (found.error() == ENOENT) return {};
  DF_RETURN_IF_ERROR(found);
  return base_->List(real, names, exists);
}

Status NfsEnv::SyncDir(const std::string& path) {
  if (!Mounted(path)) return base_->SyncDir(path);
  std::lock_guard<std::mutex> lock(mutex_);
  std::string real;
  DF_RETURN_IF_ERROR(OpenDirectoryLocked(path, &real));
  return base_->SyncDir(real);
}

void NfsEnv::Refresh(const std::string& directory) {
  if (!Mounted(directory)) return base_->Refresh(directory);
  std::lock_guard<std::mutex> lock(mutex_);
  std::string real;
  (void)OpenDirectoryLocked(directory, &real).ok();
}

Status NfsEnv::ChangeLocked(const std::string& path, const std::function<Status(const std::string& real)>& change) {
  std::string real;
  DF_RETURN_IF_ERROR(FindLocked(path, &real));
  Status status = change(real);
  if (status.ok() && lose_replies_) status = change(real);
  if (status.ok()) ForgetLocked(path);
  return status;
}

Status NfsEnv::Rename(const std::string& from, const std::string& to) {
  if (!Mounted(from)) return base_->Rename(from, to);
  std::lock_guard<std::mutex> lock(mutex_);
  std::string real_to;
  DF_RETURN_IF_ERROR(FindLocked(to, &real_to));
  const Status status = ChangeLocked(from, [&](const std::string& real) { return base_->Rename(real, real_to); });
  // A client that is told of no rename goes on remembering that there was nothing at the new name.
  ForgetLocked(status.ok() ? to : from);
  return status;
}

Status NfsEnv::MakeDir(const std::string& path, uint32_t mode) {
  if (!Mounted(path)) return base_->MakeDir(path, mode);
  std::lock_guard<std::mutex> lock(mutex_);
  return ChangeLocked(path, [&](const std::string& real) { return base_->MakeDir(real, mode); });
}

Status NfsEnv::Unlink(const std::string& path) {
  if (!Mounted(path)) return base_->Unlink(path);
  std::lock_guard<std::mutex> lock(mutex_);
  return Gone(ChangeLocked(path, [&](const std::string& real) { return base_->Unlink(real); }));
}

Status NfsEnv::RemoveDir(const std::string& path) {
  if (!Mounted(path)) return base_->RemoveDir(path);
  std::lock_guard<std::mutex> lock(mutex_);
  return Gone(ChangeLocked(path, [&](const std::string& real) { return base_->RemoveDir(real); }));
}

}  // namespace deepfreeze
