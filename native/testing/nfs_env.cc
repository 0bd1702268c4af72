#include "testing/nfs_env.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "testing/nfs_file.h"

namespace deepfreeze {
namespace {

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

// Takes the error that a name to be removed is not there for success.
Status Gone(const Status& status) { return status.error() == ENOENT ? Status() : status; }

std::string Parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

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

bool NfsEnv::RemembersNone(const std::string& path) {
  std::lock_guard<std::mutex> lock(mutex_);
  const Entry* entry = RecallLocked(path);
  return entry != nullptr && entry->directory < 0;
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

Status NfsEnv::Refresh(const std::string& directory) {
  if (!Mounted(directory)) return base_->Refresh(directory);
  std::lock_guard<std::mutex> lock(mutex_);
  std::string real;
  DF_RETURN_IF_ERROR(OpenDirectoryLocked(directory, &real));
  return base_->Refresh(real);
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
