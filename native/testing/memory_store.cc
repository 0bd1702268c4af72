#include "testing/memory_store.h"

#include <algorithm>

#include "base/crc32c.h"
#include "base/env.h"
#include "format/names.h"
#include "testing/check.h"

namespace deepfreeze {
namespace {

// The folder of an attempt's blobs of a step, also when they are committed.
std::string Folder(int64_t step, const Id& attempt) { return PartialName(step, attempt) + "/"; }
std::string Committed(int64_t step, const Id& attempt) { return "committed/" + PartialName(step, attempt); }
std::string Shard(uint32_t rank) { return "shard-" + std::to_string(rank) + "-"; }

// Each write is a blob, as a part of an upload is.
class MemoryShard final : public ShardWriter {
 public:
  MemoryShard(Blobs* blobs, const Identity& identity)
      : blobs_(blobs), prefix_(Folder(identity.step, identity.attempt) + Shard(identity.rank)) {}

  Status Begin(bool* kept) override {
    if (kept != nullptr) *kept = begun_;
    for (const std::string& part : blobs_->List(prefix_)) {
      if (!begun_) blobs_->Delete(prefix_ + part);
    }
    begun_ = true;
    return {};
  }
  Status Write(uint64_t offset, const void* data, size_t n) override {
    CHECK(begun_);
    return blobs_->Put(prefix_ + std::to_string(offset), std::string(static_cast<const char*>(data), n));
  }
  bool direct() const override { return true; }
  Status WriteDirect(uint64_t offset, const void* data, size_t n) override {
    CHECK((offset | n | reinterpret_cast<uintptr_t>(data)) % kDirectUnit == 0);
    return Write(offset, data, n);
  }
  Status Seal() override {
    CHECK(begun_);
    begun_ = false;
    return {};
  }

 private:
  Blobs* const blobs_;
  const std::string prefix_;
  bool begun_ = false;
};

class MemoryMeeting final : public Meeting {
 public:
  MemoryMeeting(Blobs* blobs, const Identity& identity) : blobs_(blobs), identity_(identity) {}

  Status Sealed(const Record& record, Seal* seal) override {
    *seal = Seal::kSeen;
    return blobs_->Put(In(record.identity.step) + RecordName(identity_.rank), EncodeRecord(record));
  }
  Status Failed(int64_t step, const std::string& why) override {
    return blobs_->Put(
        identity_.rank == 0 ? FailedStepName(step, identity_.attempt) : In(step) + FailedName(identity_.rank), why);
  }
  Status Superseded(int64_t step, int64_t by) override {
    return blobs_->Put(FailedStepName(step, identity_.attempt), SupersededText(by));
  }
  void Beat(int64_t step, uint64_t beat) override {
    (void)blobs_->Put(In(step) + AliveName(identity_.rank, beat), "").ok();
  }
  void Ended(int64_t /*step*/, bool /*committed*/) override {}
  Status Look(int64_t step, Verdict* verdict, std::string* why) override {
    const bool committed = blobs_->Has(Committed(step, identity_.attempt));
    const bool failed = blobs_->Get(FailedStepName(step, identity_.attempt), why);
    int64_t by = 0;
    const Verdict told = ParseSuperseded(*why, &by) ? Verdict::kSuperseded : Verdict::kFailed;
    *verdict = committed ? Verdict::kCommitted : failed ? told : Verdict::kPending;
    return {};
  }
  Status Roll(int64_t step, PartialState* roll, std::string* failure) override {
    *roll = PartialState();
    failure->clear();
    for (const std::string& name : blobs_->List(In(step))) {
      uint32_t rank = 0;
      uint64_t beat = 0;
      roll->exists = true;
      if (ParseRecordName(name, &rank)) roll->present.push_back(rank);
      if (ParseAliveName(name, &rank, &beat)) roll->alive.emplace_back(rank, beat);
      if (!ParseFailedName(name, &rank)) continue;
      roll->failed.push_back(rank);
      std::string why;
      if (!failure->empty() || !blobs_->Get(In(step) + name, &why)) continue;
      *failure = StepName(step) + ": rank " + std::to_string(rank) + " failed: " + why;
    }
    return {};
  }

 private:
  std::string In(int64_t step) const { return Folder(step, identity_.attempt); }

  Blobs* const blobs_;
  const Identity identity_;
};

}  // namespace

Status Blobs::Put(const std::string& key, const std::string& bytes) {
  if (before_put) DF_RETURN_IF_ERROR(before_put(key));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    blobs_[key] = bytes;
  }
  return after_put ? after_put(key) : Status();
}

bool Blobs::Get(const std::string& key, std::string* bytes) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = blobs_.find(key);
  if (found == blobs_.end()) return false;
  *bytes = found->second;
  return true;
}

bool Blobs::Has(const std::string& key) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return blobs_.count(key) > 0;
}

void Blobs::Delete(const std::string& key) {
  std::lock_guard<std::mutex> lock(mutex_);
  blobs_.erase(key);
}

std::vector<std::string> Blobs::List(const std::string& prefix) const {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::string> names;
  for (auto at = blobs_.lower_bound(prefix); at != blobs_.end() && at->first.compare(0, prefix.size(), prefix) == 0;
       ++at) {
    names.push_back(at->first.substr(prefix.size()));
  }
  return names;
}

std::unique_ptr<ShardWriter> MemoryStore::OpenShard(const Identity& identity) {
  return std::make_unique<MemoryShard>(blobs_, identity);
}

std::unique_ptr<Meeting> MemoryStore::Meet(const Identity& identity) {
  return std::make_unique<MemoryMeeting>(blobs_, identity);
}

bool MemoryStore::Find(int64_t step, Manifest* manifest) const {
  std::string bytes;
  return blobs_->Get(StepName(step), &bytes) && DecodeManifest(bytes, StepName(step), manifest).ok();
}

std::string MemoryStore::Model(const Manifest& manifest) const {
  std::string file(manifest.identity.file_size, '\0');
  const std::string folder = Folder(manifest.identity.step, manifest.identity.attempt);
  for (const std::string& name : blobs_->List(folder)) {
    if (name.rfind("shard-", 0) != 0) continue;
    std::string bytes;
    CHECK(blobs_->Get(folder + name, &bytes));
    const uint64_t offset = std::stoull(name.substr(name.rfind('-') + 1));
    CHECK(offset + bytes.size() <= file.size());
    file.replace(offset, bytes.size(), bytes);
  }
  return file;
}

Status MemoryStore::CheckOwner(const Id& attempt) const {
  std::string owner;
  if (!blobs_->Get(kOwnerName, &owner) || owner == Hex(attempt) + "\n") return {};
  return Status(Code::kTaken, place() + ": another attempt has taken the run");
}

Status MemoryStore::Gather(const CommitRequest& request, std::string* gathered, Manifest* manifest,
                           CommitOutcome* outcome) const {
  const std::string folder = Folder(request.step, request.attempt);
  Comparison comparison;
  std::vector<Extent> extents;
  for (const std::string& name : blobs_->List(folder + "rank-")) {
    std::string bytes;
    uint32_t rank = 0;
    Record record;
    if (!ParseRecordName("rank-" + name, &rank) || !blobs_->Get(folder + RecordName(rank), &bytes)) continue;
    DF_RETURN_IF_ERROR(DecodeRecord(bytes, folder + name, &record));
    if (manifest->records.empty()) manifest->identity = request.expected ? *request.expected : record.identity;
    if (!record.identity.SameCheckpoint(manifest->identity)) return Malformed(folder + name, "a record", "another");
    if (request.whole_pages) {
      DF_RETURN_IF_ERROR(CheckWholePages(record.extents, record.identity.file_size, folder + name));
    }
    if (rank == 0) DF_RETURN_IF_ERROR(TakeManifestValues(record.values, folder + name, &manifest->values));
    manifest->records.push_back(ManifestRecord{rank, TotalBytes(record.extents), record.extents.size(),
                                               record.private_data.size(), record.values.size(), bytes.size(),
                                               Get32(bytes.data() + bytes.size() - 4)});
    *gathered += bytes;
    extents.insert(extents.end(), record.extents.begin(), record.extents.end());
    comparison.Add(record);
  }
  if (manifest->records.size() != manifest->identity.world) {
    return Status(Code::kIncomplete, folder + ": a record is missing");
  }
  outcome->divergence = comparison.Result();
  outcome->compared = outcome->divergence.compared;
  if (request.known != nullptr) outcome->divergence = Holds(outcome->divergence, *request.known);
  manifest->diverged = outcome->divergence.tensors;
  if (request.refuse_diverged && outcome->divergence.tensors > 0) {
    return Status(Code::kDiverged, outcome->divergence.text);
  }
  DF_RETURN_IF_ERROR(CheckCoverage(extents, manifest->identity.file_size, folder));
  const std::string file = Model(*manifest);
  for (const Extent& extent : extents) {
    if (Crc32c(0, file.data() + extent.file_offset, extent.size) != extent.crc) {
      return Malformed(folder, "the bytes that the records describe", "others");
    }
  }
  return {};
}

Status MemoryStore::Commit(const CommitRequest& request, CommitOutcome* outcome) {
  Manifest old;
  const bool there = Find(request.step, &old);
  if (there && old.identity.attempt == request.attempt) return {};
  if (there && !request.replace) return Status(Code::kInvalid, StepName(request.step) + ": another one is there");
  Manifest manifest;
  std::string gathered;
  DF_RETURN_IF_ERROR(Gather(request, &gathered, &manifest, outcome));
  DF_RETURN_IF_ERROR(blobs_->Put(Folder(request.step, request.attempt) + kRecordsName, gathered));
  if (request.own) DF_RETURN_IF_ERROR(CheckOwner(request.attempt));
  outcome->in_doubt = true;
  DF_RETURN_IF_ERROR(blobs_->Put(StepName(request.step), EncodeManifest(manifest)));
  outcome->in_doubt = false;
  outcome->gathered = true;
  // For the ranks that look, also when the checkpoint is removed again.
  outcome->unsynced = blobs_->Put(Committed(request.step, request.attempt), "");
  const std::string replaced = Folder(request.step, old.identity.attempt);
  if (there) {
    for (const std::string& name : blobs_->List(replaced)) blobs_->Delete(replaced + name);
  }
  return {};
}

Status MemoryStore::Settle(int64_t step, const Id& attempt, Fate* fate) {
  Manifest manifest;
  if (Find(step, &manifest) && manifest.identity.attempt == attempt) {
    *fate = Fate::kCommitted;
    return blobs_->Put(Committed(step, attempt), "");
  }
  const bool there = !blobs_->List(Folder(step, attempt)).empty();
  *fate = there ? Fate::kUncommitted : Fate::kGone;
  return there ? Status() : CheckOwner(attempt);
}

Status MemoryStore::Remove(int64_t step, const Id& attempt) {
  DF_RETURN_IF_ERROR(CheckOwner(attempt));
  Manifest manifest;
  if (!Find(step, &manifest)) return {};
  blobs_->Delete(StepName(step));
  const std::string folder = Folder(step, manifest.identity.attempt);
  for (const std::string& name : blobs_->List(folder)) blobs_->Delete(folder + name);
  return {};
}

void MemoryStore::Tidy(int64_t step) {
  Manifest manifest;
  if (!Find(step, &manifest)) return;
  for (const ManifestRecord& record : manifest.records) {
    blobs_->Delete(Folder(step, manifest.identity.attempt) + RecordName(record.rank));
  }
}

Status MemoryStore::CleanUp(const CleanUpRequest& request) {
  MadeRoom made;
  return MakeRoom(request, &made);
}

// The verdict stays, so the rest need not wait until all ranks have seen it.
Status MemoryStore::MakeRoom(const CleanUpRequest& request, MadeRoom* made) {
  *made = MadeRoom();
  DF_RETURN_IF_ERROR(CheckOwner(request.attempt));
  for (const std::string& key : blobs_->List("")) {
    const RunEntry entry = ParseRunEntry(key.substr(0, key.find('/')));
    if (entry.kind != EntryKind::kPartial || entry.attempt != request.attempt || entry.step >= request.step) continue;
    if (!blobs_->Has(FailedStepName(entry.step, entry.attempt))) continue;
    blobs_->Delete(key);
    made->removed = true;
  }
  return {};
}

Status MemoryStore::FindPart(const Identity& identity, Part* part) {
  Manifest manifest;
  const bool sealed = blobs_->Has(Folder(identity.step, identity.attempt) + RecordName(identity.rank));
  const bool committed = Find(identity.step, &manifest) && manifest.identity.attempt == identity.attempt;
  *part = committed ? Part::kCommitted : sealed ? Part::kSealed : Part::kMissing;
  return {};
}

Status MemoryStore::Finish(int64_t step, const Id& attempt) {
  CommitRequest request;
  request.step = step;
  request.attempt = attempt;
  request.refuse_diverged = true;
  CommitOutcome outcome;
  DF_RETURN_IF_ERROR(Commit(request, &outcome));
  if (outcome.unsynced.ok()) Tidy(step);
  return outcome.unsynced;
}

Status MemoryStore::Newest(Manifest* manifest, bool* found) {
  *found = false;
  for (const std::string& key : blobs_->List("")) {
    const RunEntry entry = ParseRunEntry(key);  // in the order of the steps
    if (entry.kind == EntryKind::kStep) *found = Find(entry.step, manifest) || *found;
  }
  return {};
}

}  // namespace deepfreeze
