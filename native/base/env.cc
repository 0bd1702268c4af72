#include "base/env.h"

#include <cerrno>
#include <utility>

namespace deepfreeze {
namespace {

std::string Parent(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

Status ReadFull(File* file, uint64_t offset, void* data, size_t n) {
  char* to = static_cast<char*>(data);
  while (n > 0) {
    size_t done = 0;
    DF_RETURN_IF_ERROR(file->PRead(offset, to, n, &done));
    if (done == 0) {
      return Status::FourPart(Code::kCorrupt, file->path(),
                              std::to_string(n) + " more bytes at " + std::to_string(offset), "the end of the file",
                              "The file is cut short; use another checkpoint");
    }
    to += done;
    offset += done;
    n -= done;
  }
  return {};
}

Status WriteFull(File* file, uint64_t offset, const void* data, size_t n) {
  const char* from = static_cast<const char*>(data);
  while (n > 0) {
    size_t done = 0;
    DF_RETURN_IF_ERROR(file->PWrite(offset, from, n, &done));
    if (done == 0) return Status(Code::kIo, "pwrite " + file->path() + ": the system wrote nothing");
    from += done;
    offset += done;
    n -= done;
  }
  return {};
}

Status ReadSmallFile(Env* env, const std::string& path, uint64_t limit, std::string* contents) {
  std::unique_ptr<File> file;
  DF_RETURN_IF_ERROR(env->Open(path, OpenMode::kRead, &file));
  uint64_t size = 0;
  DF_RETURN_IF_ERROR(file->Size(&size));
  if (size > limit) {
    return Status::FourPart(Code::kCorrupt, path, "at most " + std::to_string(limit) + " bytes",
                            std::to_string(size) + " bytes", "This file was not written by this library; remove it");
  }
  contents->resize(size);
  return ReadFull(file.get(), 0, contents->data(), size);
}

Status CheckProcess(Env* env, int64_t process, const std::string& call, const std::string& thing) {
  if (env->ProcessId() == process) return {};
  return Status::FourPart(Code::kInvalid, call,
                          "a call by the process that opened the " + thing + ", " + std::to_string(process),
                          "process " + std::to_string(env->ProcessId()) + ", forked from it",
                          "Open another " + thing + " in the new process");
}

Status OpenNew(Env* env, const std::string& path, std::unique_ptr<File>* file) {
  Status made = env->Open(path, OpenMode::kNew, file);
  if (made.error() != EEXIST) return made;
  DF_RETURN_IF_ERROR(env->Unlink(path));
  return env->Open(path, OpenMode::kNew, file);
}

Status ReplaceFile(Env* env, const std::string& path, const std::string& contents, bool sync, bool* perhaps) {
  if (perhaps != nullptr) *perhaps = false;
  std::unique_ptr<File> file;
  DF_RETURN_IF_ERROR(OpenNew(env, path + ".tmp", &file));
  return ReplaceFileBy(env, std::move(file), path, contents, sync, perhaps);
}

Status ReplaceFileBy(Env* env, std::unique_ptr<File> file, const std::string& path, const std::string& contents,
                     bool sync, bool* perhaps) {
  bool ignored = false;
  bool& may_be_there = perhaps != nullptr ? *perhaps : ignored;
  may_be_there = false;
  const std::string temporary = path + ".tmp";
  DF_RETURN_IF_ERROR(WriteFull(file.get(), 0, contents.data(), contents.size()));
  // Without this sync a loss of power could leave the new name on an empty file.
  if (sync) DF_RETURN_IF_ERROR(file->Sync());
  DF_RETURN_IF_ERROR(file->Close());
  may_be_there = true;
  Status renamed = env->Rename(temporary, path);
  if (renamed.ok()) return {};
  // Without a fresh look the client of a network file system may answer from its cache, which may be out of date.
  if (!env->Refresh(Parent(path)).ok()) return renamed;
  FileInfo left;
  if (!env->Stat(temporary, &left).ok()) return renamed;
  if (left.exists) {
    may_be_there = false;
    return renamed;
  }
  std::string found;
  return ReadSmallFile(env, path, contents.size(), &found).ok() && found == contents ? Status() : renamed;
}

Status Move(Env* env, const std::string& from, const std::string& to) {
  Status renamed = env->Rename(from, to);
  if (renamed.ok()) return {};
  if (!env->Refresh(Parent(to)).ok()) return renamed;
  FileInfo before;
  FileInfo after;
  const bool moved = env->Stat(from, &before).ok() && !before.exists && env->Stat(to, &after).ok() && after.exists;
  return moved ? Status() : renamed;
}

}  // namespace deepfreeze
