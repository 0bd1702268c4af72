#include "store/partial.h"

#include <algorithm>
#include <cerrno>

#include "format/names.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kMaxFailure = 65536;
constexpr size_t kNamedRanks = 16;

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

Status PartialWriter::Open(Env* env, const std::string& run_dir, const Identity& identity) {
  env_ = env;
  directory_ = PartialPath(run_dir, identity.step, identity.attempt);
  DF_RETURN_IF_ERROR(env->MakeDir(directory_, 0777));
  DF_RETURN_IF_ERROR(CheckPartial(env, directory_));
  const std::string path = Join(directory_, kModelName);
  Status opened = env->Open(path, OpenMode::kNew, &file_);
  made_ = made_ || opened.ok();
  if (opened.error() == EEXIST) opened = env->Open(path, OpenMode::kUpdate, &file_);
  DF_RETURN_IF_ERROR(opened);
  uint64_t size = 0;
  DF_RETURN_IF_ERROR(file_->Size(&size));
  // A longer file was written with another structure, under this name by mistake.
  if (size > identity.file_size) DF_RETURN_IF_ERROR(file_->Truncate(identity.file_size));
  // By one rank alone: parallel file systems lock the whole file for it. If that rank dies before, the file gets its
  // size by the writes.
  if (made_) DF_RETURN_IF_ERROR(file_->Allocate(identity.file_size));
  direct_opened_ = env->Open(path, OpenMode::kDirect, &direct_);
  if (!direct_opened_.ok()) direct_.reset();
  return {};
}

std::string PartialWriter::CachedBecause() const {
  if ((direct_ != nullptr && direct_->Direct()) || env_->InMemory(directory_)) return "";
  return direct_ == nullptr ? direct_opened_.message() : "the file system refused a write";
}

Status PartialWriter::Sync() {
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

Status ScanPartial(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, PartialState* state) {
  *state = PartialState();
  std::vector<std::string> names;
  DF_RETURN_IF_ERROR(env->List(PartialPath(run_dir, step, attempt), &names, &state->exists));
  for (const std::string& name : names) {
    uint32_t rank = 0;
    if (ParseRecordName(name, &rank)) state->present.push_back(rank);
    if (ParseFailedName(name, &rank)) state->failed.push_back(rank);
    uint64_t number = 0;
    if (ParseAliveName(name, &rank, &number)) state->alive.emplace_back(rank, number);
  }
  std::sort(state->present.begin(), state->present.end());
  std::sort(state->failed.begin(), state->failed.end());
  return {};
}

Status WriteFailure(Env* env, const std::string& path, const std::string& message) {
  if (ReplaceFile(env, path, message.substr(0, kMaxFailure - 1) + "\n", false).ok()) return {};
  // A full disk may still have room for the name of an empty file, and the other ranks look for the name alone.
  std::unique_ptr<File> empty;
  return env->Open(path, OpenMode::kUpdate, &empty);
}

std::string ReadFailure(Env* env, const std::string& path) {
  std::string text;
  const Status status = ReadSmallFile(env, path, kMaxFailure, &text);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (!status.ok()) return status.message();
  return text.empty() ? "the reason could not be written" : text;
}

std::string NameRanks(const std::vector<uint32_t>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < std::min(ranks.size(), kNamedRanks); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  if (ranks.size() > kNamedRanks) text += " and " + std::to_string(ranks.size() - kNamedRanks) + " more";
  return text;
}

std::string DescribeMissing(const PartialState& state, uint32_t world) {
  std::vector<uint32_t> missing;
  for (uint32_t rank = 0; rank < world; ++rank) {
    if (!std::binary_search(state.present.begin(), state.present.end(), rank)) missing.push_back(rank);
  }
  const std::string count =
      " (" + std::to_string(world - missing.size()) + " of " + std::to_string(world) + " present)";
  if (missing.size() == 1) return NameRanks(missing) + "'s record is missing" + count;
  return "the records of " + NameRanks(missing) + " are missing" + count;
}

}  // namespace deepfreeze
