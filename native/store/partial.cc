#include "store/partial.h"

#include <algorithm>
#include <cerrno>

#include "format/names.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kMaxFailure = 65536;

}  // namespace

std::string PartialPath(const std::string& run_dir, int64_t step, const Id& attempt) {
  return Join(run_dir, PartialName(step, attempt));
}

Status CheckPartial(Env* env, const std::string& directory) {
  FileInfo info;
  DF_RETURN_IF_ERROR(env->Stat(directory, &info));
  if (!info.exists || info.is_directory) return {};
  return Status::FourPart(Code::kInvalid, directory, "a directory", "a symbolic link or another file",
                          "Remove it; this library did not make it");
}

PartialWriter::PartialWriter(Env* env, const std::string& run_dir, const Identity& identity, bool cached)
    : env_(env),
      directory_(PartialPath(run_dir, identity.step, identity.attempt)),
      size_(identity.file_size),
      cached_(cached) {}

// An error of a write may be that of an earlier write, which was in the page cache until now. Each descriptor is told
// of it once. So what was written counts as kept only if a descriptor through which nothing was written into the cache
// can be synced.
bool PartialWriter::Kept() {
  File* const witness = direct_ != nullptr && direct_->Direct() ? direct_.get() : witness_.get();
  return witness != nullptr && witness->DataSync().ok();
}

Status PartialWriter::Begin(bool* kept) {
  const bool again = file_ != nullptr;
  if (kept != nullptr) *kept = false;
  if (kept != nullptr && again && !lost_) lost_ = !Kept();
  DF_RETURN_IF_ERROR(env_->MakeDir(directory_, 0777));
  DF_RETURN_IF_ERROR(CheckPartial(env_, directory_));
  const std::string path = Join(directory_, kModelName);
  std::unique_ptr<File> file;
  Status opened = env_->Open(path, OpenMode::kNew, &file);
  made_ = made_ || opened.ok();
  if (opened.error() == EEXIST) opened = env_->Open(path, OpenMode::kUpdate, &file);
  DF_RETURN_IF_ERROR(opened);
  uint64_t number = 0;
  if (kept != nullptr) DF_RETURN_IF_ERROR(file->Number(&number));
  lost_ = lost_ || (again && number != number_);  // file_ is still open, so its number is no other file's
  uint64_t size = 0;
  DF_RETURN_IF_ERROR(file->Size(&size));
  // A longer file was written with another structure, under this name by mistake.
  if (size > size_) DF_RETURN_IF_ERROR(file->Truncate(size_));
  // By one rank alone: parallel file systems lock the whole file for it. If that rank dies before, the file gets its
  // size by the writes.
  if (made_) DF_RETURN_IF_ERROR(file->Allocate(size_));
  std::unique_ptr<File> direct;
  std::unique_ptr<File> witness;
  if (!cached_) direct_opened_ = env_->Open(path, OpenMode::kDirect, &direct);
  if (!direct_opened_.ok()) direct.reset();
  if (direct == nullptr && kept != nullptr) DF_RETURN_IF_ERROR(env_->Open(path, OpenMode::kRead, &witness));
  number_ = number;
  file_ = std::move(file);
  direct_ = std::move(direct);
  witness_ = std::move(witness);
  if (kept != nullptr) *kept = again && !lost_;
  return {};
}

Status PartialWriter::Write(uint64_t offset, const void* data, size_t n) {
  return WriteFull(file_.get(), offset, data, n);
}

Status PartialWriter::WriteDirect(uint64_t offset, const void* data, size_t n) {
  return WriteFull(direct_.get(), offset, data, n);
}

std::string PartialWriter::CachedBecause() const {
  if (cached_ || (direct_ != nullptr && direct_->Direct()) || env_->InMemory(directory_)) return "";
  return direct_ == nullptr ? direct_opened_.message() : "the file system refused a write";
}

Status PartialWriter::Seal() {
  DF_RETURN_IF_ERROR(file_->DataSync());  // also flushes what was written through `direct_`: it is the same file
  if (direct_ != nullptr) DF_RETURN_IF_ERROR(direct_->Close());
  direct_.reset();
  DF_RETURN_IF_ERROR(file_->Close());
  file_.reset();
  return {};
}

Status MarkFailed(Env* env, const std::string& run_dir, const Identity& identity, const std::string& message) {
  const std::string directory = PartialPath(run_dir, identity.step, identity.attempt);
  DF_RETURN_IF_ERROR(CheckPartial(env, directory));
  return WriteFailure(env, Join(directory, FailedName(identity.rank)), message);
}

Status ScanPartial(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, PartialState* state,
                   RecordFiles* files) {
  *state = PartialState();
  RecordFiles found;
  std::vector<std::string> names;
  DF_RETURN_IF_ERROR(env->List(PartialPath(run_dir, step, attempt), &names, &state->exists));
  for (const std::string& name : names) {
    uint32_t rank = 0;
    NodeRanks ranks;
    if (ParseRecordName(name, &rank)) found.own.push_back(rank);
    if (ParseNodeRecordName(name, &ranks)) found.nodes.push_back(ranks);
    if (ParseFailedName(name, &rank)) state->failed.push_back(rank);
    uint64_t number = 0;
    if (ParseAliveName(name, &rank, &number)) state->alive.emplace_back(rank, number);
  }
  std::vector<uint32_t>& present = state->present;
  present = found.own;
  for (const NodeRanks& ranks : found.nodes) {
    for (uint32_t i = 0; i < ranks.count(); ++i) present.push_back(ranks.first + i * ranks.distance);
  }
  std::sort(present.begin(), present.end());
  present.erase(std::unique(present.begin(), present.end()), present.end());
  std::sort(found.own.begin(), found.own.end());
  if (files != nullptr) *files = std::move(found);
  std::sort(state->failed.begin(), state->failed.end());
  return {};
}

Status WriteFailure(Env* env, const std::string& path, const std::string& message) {
  if (ReplaceFile(env, path, message.substr(0, kMaxFailure - 1) + "\n", false).ok()) return {};
  // A full disk may still have room for the name of an empty file, and the other ranks look for the name alone.
  std::unique_ptr<File> empty;
  return env->Open(path, OpenMode::kUpdate, &empty);
}

Status ReadFailure(Env* env, const std::string& path, std::string* message) {
  message->clear();
  DF_RETURN_IF_ERROR(ReadSmallFile(env, path, kMaxFailure, message));
  while (!message->empty() && message->back() == '\n') message->pop_back();
  return {};
}

std::string DescribeFailure(Env* env, const std::string& path) {
  std::string text;
  const Status status = ReadFailure(env, path, &text);
  if (!status.ok()) return status.message();
  return text.empty() ? "the reason could not be written" : text;
}

}  // namespace deepfreeze
