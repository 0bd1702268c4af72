#include "store/commit.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>

#include "base/crc32c.h"
#include "format/names.h"
#include "format/record.h"
#include "store/owner.h"
#include "store/partial.h"
#include "store/records.h"
#include "store/retention.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kMaxManifest = uint64_t{64} << 20;
constexpr size_t kBlock = size_t{1} << 20;
// The end of the message when ranks differ. Every rank shows it, because the other ranks quote rank 0's message.
constexpr char kUsualCauses[] =
    "; usual causes: an optimizer that is not wrapped (DistributedOptimizer), an initial state that is not broadcast "
    "(BroadcastState)";

// Compares the ranks whose records are there and whole. That they agree says nothing about the other ranks.
Status CompareRecords(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, Divergence* found) {
  Comparison comparison;
  PartialState state;
  RecordFiles files;
  DF_RETURN_IF_ERROR(ScanPartial(env, run_dir, step, attempt, &state, &files));
  PartialRecords records(env, PartialPath(run_dir, step, attempt), files);
  uint32_t missing = 1;  // until a record tells how many ranks there are
  for (const uint32_t rank : state.present) {
    std::string path;
    std::string bytes;
    Record record;
    Status status = records.Read(rank, &bytes, &path);
    if (status.ok()) status = DecodeRecord(bytes, path, &record);
    if (status.code() == Code::kCorrupt || status.error() == ENOENT) continue;
    DF_RETURN_IF_ERROR(status);
    comparison.Add(record);
    missing = record.identity.world - std::min(record.identity.world, comparison.ranks());
  }
  *found = comparison.Result();
  found->compared = found->compared && (found->tensors > 0 || missing == 0);
  return {};
}

// Reads the records of all ranks. Fills in the manifest and the extents of all ranks, and gathers the records.
Status ReadRecords(Env* env, const std::string& directory, const CommitRequest& request, const PartialState& state,
                   const RecordFiles& files, RecordsWriter* gathered, Manifest* manifest, std::vector<Extent>* extents,
                   CommitOutcome* outcome) {
  Comparison comparison;
  PartialRecords records(env, directory, files);
  for (const uint32_t rank : state.present) {
    std::string path;
    std::string bytes;
    Record record;
    DF_RETURN_IF_ERROR(records.Read(rank, &bytes, &path));
    DF_RETURN_IF_ERROR(DecodeRecord(bytes, path, &record));
    if (manifest->records.empty()) manifest->identity = request.expected ? *request.expected : record.identity;
    const Identity& id = record.identity;
    if (id.rank != rank || id.step != request.step || id.attempt != request.attempt ||
        !id.SameCheckpoint(manifest->identity)) {
      return Malformed(path, "a record of this rank, step, attempt, structure and world size", "another one's");
    }
    if (request.whole_pages) DF_RETURN_IF_ERROR(CheckWholePages(record.extents, id.file_size, path));
    // Encoded again, since the rank may have written version 1. Of version 2 these are the very bytes that were read.
    bytes = EncodeRecord(record);
    if (state.present.size() == id.world) DF_RETURN_IF_ERROR(gathered->Add(bytes));
    if (rank == 0) DF_RETURN_IF_ERROR(TakeManifestValues(record.values, path, &manifest->values));
    manifest->records.push_back(ManifestRecord{rank, TotalBytes(record.extents), record.extents.size(),
                                               record.private_data.size(), record.values.size(), bytes.size(),
                                               Get32(bytes.data() + bytes.size() - 4)});
    extents->insert(extents->end(), record.extents.begin(), record.extents.end());
    comparison.Add(record);
  }
  outcome->divergence = comparison.Result();
  outcome->compared = outcome->divergence.compared;
  if (request.known != nullptr) outcome->divergence = Holds(outcome->divergence, *request.known);
  manifest->diverged = outcome->divergence.tensors;
  return {};
}

Status VerifyModel(File* model, const std::vector<Extent>& extents) {
  std::string block(kBlock, '\0');
  for (const Extent& extent : extents) {
    uint32_t crc = 0;
    for (uint64_t at = 0; at < extent.size;) {
      const size_t n = static_cast<size_t>(std::min<uint64_t>(kBlock, extent.size - at));
      DF_RETURN_IF_ERROR(ReadFull(model, extent.file_offset + at, block.data(), n));
      crc = Crc32c(crc, block.data(), n);
      at += n;
    }
    if (crc != extent.crc) {
      return Malformed(model->path(),
                       "checksum " + Hex32(extent.crc) + " of " + std::to_string(extent.size) + " bytes at " +
                           std::to_string(extent.file_offset),
                       Hex32(crc));
    }
  }
  return {};
}

Status SyncModel(Env* env, const std::string& directory, const CommitRequest& request, const Manifest& manifest,
                 const std::vector<Extent>& extents) {
  std::unique_ptr<File> model;
  const std::string path = Join(directory, kModelName);
  const Status opened = env->Open(path, OpenMode::kRead, &model);
  // After a loss of power the record's name may be there, and the model file's name may be lost.
  if (opened.error() == ENOENT) return Malformed(path, "the file that the records describe", "none");
  DF_RETURN_IF_ERROR(opened);
  uint64_t size = 0;
  DF_RETURN_IF_ERROR(model->Size(&size));
  if (size != manifest.identity.file_size) {
    return Malformed(path, std::to_string(manifest.identity.file_size) + " bytes", std::to_string(size));
  }
  if (request.verify) DF_RETURN_IF_ERROR(VerifyModel(model.get(), extents));
  DF_RETURN_IF_ERROR(model->DataSync());
  return model->Close();
}

// Moves RUN/step-N away before the rename: a directory can't be renamed to the name of one that is not empty.
Status MakeWay(Env* env, const std::string& run_dir, const CommitRequest& request) {
  const std::string target = Join(run_dir, StepName(request.step));
  FileInfo info;
  DF_RETURN_IF_ERROR(env->Stat(target, &info));
  if (!info.exists) return {};
  Manifest old;
  bool counts = false;
  DF_RETURN_IF_ERROR(ReadCommitted(env, run_dir, request.step, &old, &counts));
  if (counts && !request.replace) {
    return Status::FourPart(Code::kInvalid, target, "no checkpoint of this step",
                            "one committed by attempt " + Hex(old.identity.attempt),
                            "Keep that one, or move it away first");
  }
  // From here until the rename only the partial directory has the step. So the partial directory's name is made durable
  // before the name of the old directory goes.
  DF_RETURN_IF_ERROR(env->SyncDir(run_dir));
  return MoveToTrash(env, run_dir, StepName(request.step), request.step, counts ? old.identity.attempt : Id{});
}

// Whether the error of opening or decoding a manifest means that there is no manifest. A damaged manifest counts as
// none, and so does a name that is no regular file.
bool SaysAbsent(const Status& status) {
  return status.code() == Code::kCorrupt || status.error() == ENOENT || status.error() == ENOTDIR ||
         status.error() == ELOOP || status.error() == ENXIO;
}

// The rename that commits. If it returns an error, only a look at the names tells whether it was carried out: the
// client of a network file system that has lost the first reply sends the request again, and the second answer is
// ENOENT.
Status GiveFinalName(Env* env, const std::string& run_dir, const CommitRequest& request, CommitOutcome* outcome) {
  outcome->in_doubt = true;
  Status renamed =
      env->Rename(PartialPath(run_dir, request.step, request.attempt), Join(run_dir, StepName(request.step)));
  if (!renamed.ok()) {
    bool committed = false;
    if (!IsCommitted(env, run_dir, request.step, request.attempt, &committed).ok()) return renamed;
    outcome->in_doubt = committed;
    if (!committed) return renamed;
  }
  outcome->gathered = true;
  // A failed sync is not repeated: the data that it should have kept may be lost, and the second sync would succeed.
  outcome->unsynced = env->SyncDir(run_dir);
  outcome->in_doubt = false;
  return {};
}

}  // namespace

Status ReadCommitted(Env* env, const std::string& run_dir, int64_t step, Manifest* manifest, bool* counts) {
  const std::string path = Join(Join(run_dir, StepName(step)), kManifestName);
  // The client of a network file system may answer from an earlier look. If the fresh look fails, nothing is known.
  // That the run's directory is missing is found by the next line.
  Status anew = env->Refresh(run_dir);
  if (!anew.ok() && anew.error() != ENOENT) return anew;
  std::string bytes;
  const Status status = ReadSmallFile(env, path, kMaxManifest, &bytes);
  *counts = status.ok() && DecodeManifest(bytes, path, manifest).ok() && manifest->identity.step == step;
  return SaysAbsent(status) ? Status() : status;
}

Status IsCommitted(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, bool* committed) {
  Manifest manifest;
  DF_RETURN_IF_ERROR(ReadCommitted(env, run_dir, step, &manifest, committed));
  *committed = *committed && manifest.identity.attempt == attempt;
  return {};
}

Status KnownBefore(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, Divergence* known) {
  std::vector<std::string> names;
  bool exists = false;
  DF_RETURN_IF_ERROR(env->List(run_dir, &names, &exists));
  std::vector<RunEntry> before;
  for (const std::string& name : names) {
    const RunEntry entry = ParseRunEntry(name);
    const bool own = entry.kind == EntryKind::kStep || (entry.kind == EntryKind::kPartial && entry.attempt == attempt);
    if (own && entry.step < step) before.push_back(entry);
  }
  std::sort(before.begin(), before.end(), [](const RunEntry& a, const RunEntry& b) { return a.step > b.step; });
  for (const RunEntry& entry : before) {
    Divergence found;
    Manifest manifest;
    if (entry.kind == EntryKind::kPartial) {
      DF_RETURN_IF_ERROR(CompareRecords(env, run_dir, entry.step, attempt, &found));
    } else {
      bool counts = false;
      DF_RETURN_IF_ERROR(ReadCommitted(env, run_dir, entry.step, &manifest, &counts));
      if (!counts || manifest.identity.attempt != attempt) continue;
      found.compared = found.whole =
          true;  // at that step, or at an earlier one whose result that step's manifest has taken over
      found.tensors = manifest.diverged;
      found.text = std::to_string(manifest.diverged) + " tensors differ between the ranks";
    }
    if (!found.compared || (!found.whole && found.tensors == 0)) continue;
    *known = NotComparedSince(entry.step, found);
    return {};
  }
  return {};
}

Status CommitPartial(Env* env, const std::string& run_dir, const CommitRequest& request, Mutex* last,
                     CommitOutcome* outcome) {
  const std::string directory = PartialPath(run_dir, request.step, request.attempt);
  const std::string target = Join(run_dir, StepName(request.step));
  bool committed = false;
  DF_RETURN_IF_ERROR(IsCommitted(env, run_dir, request.step, request.attempt, &committed));
  if (committed) {
    outcome->unsynced = env->SyncDir(run_dir);  // the process that renamed it may have died before this sync
    return {};
  }
  DF_RETURN_IF_ERROR(CheckPartial(env, directory));
  Manifest manifest;
  PartialState state;
  RecordFiles files;
  DF_RETURN_IF_ERROR(ScanPartial(env, run_dir, request.step, request.attempt, &state, &files));
  if (state.present.empty()) {
    return Status::FourPart(Code::kIncomplete, directory, "the records of all ranks", "none",
                            "Use an older checkpoint");
  }
  std::vector<Extent> extents;
  RecordsWriter gathered(env, directory);
  DF_RETURN_IF_ERROR(ReadRecords(env, directory, request, state, files, &gathered, &manifest, &extents, outcome));
  if (manifest.records.size() != manifest.identity.world) {
    return Status(Code::kIncomplete, target + ": " + DescribeMissing(state, manifest.identity.world));
  }
  if (request.refuse_diverged && outcome->divergence.tensors > 0) {
    return Status(Code::kDiverged, outcome->divergence.text + kUsualCauses);
  }
  DF_RETURN_IF_ERROR(CheckCoverage(extents, manifest.identity.file_size, directory));
  DF_RETURN_IF_ERROR(SyncModel(env, directory, request, manifest, extents));
  DF_RETURN_IF_ERROR(gathered.Publish());

  std::vector<std::string> names;
  bool exists = false;
  DF_RETURN_IF_ERROR(env->List(directory, &names, &exists));
  for (const std::string& name : names) {
    if (IsLeftover(name)) DF_RETURN_IF_ERROR(env->Unlink(Join(directory, name)));
  }
  manifest.created = env->WallSeconds();
  DF_RETURN_IF_ERROR(ReplaceFile(env, Join(directory, kManifestName), EncodeManifest(manifest), true));
  // The names of the manifest and the records are made durable before the directory's final name, because a directory
  // with its final name is taken to be whole.
  DF_RETURN_IF_ERROR(env->SyncDir(directory));
  if (request.own) DF_RETURN_IF_ERROR(CheckOwner(env, run_dir, request.attempt));
  DF_RETURN_IF_ERROR(MakeWay(env, run_dir, request));
  const MutexLock lock(last);
  return GiveFinalName(env, run_dir, request, outcome);
}

}  // namespace deepfreeze
