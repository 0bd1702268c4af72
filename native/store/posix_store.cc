#include "store/posix_store.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "format/names.h"
#include "store/commit.h"
#include "store/dir_meeting.h"
#include "store/owner.h"
#include "store/partial.h"
#include "store/records.h"
#include "store/retention.h"

namespace deepfreeze {

std::unique_ptr<ShardWriter> PosixStore::OpenShard(const Identity& identity) {
  return std::make_unique<PartialWriter>(env_, place(), identity, cached_);
}

std::unique_ptr<Meeting> PosixStore::Meet(const Identity& identity) {
  return std::make_unique<DirMeeting>(env_, place(), identity);
}

Status PosixStore::Commit(const CommitRequest& request, CommitOutcome* outcome) {
  return CommitPartial(env_, place(), request, &last_, outcome);
}

// The directory's name, step-N or step-N.partial-ATTEMPT, tells whether the step is committed.
Status PosixStore::Settle(int64_t step, const Id& attempt, Fate* fate) {
  *fate = Fate::kUnknown;
  bool committed = false;
  DF_RETURN_IF_ERROR(IsCommitted(env_, place(), step, attempt, &committed));
  if (committed) {
    *fate = Fate::kCommitted;
    return env_->SyncDir(place());
  }
  FileInfo partial;
  DF_RETURN_IF_ERROR(env_->Stat(PartialPath(place(), step, attempt), &partial));
  *fate = partial.exists ? Fate::kUncommitted : Fate::kGone;
  return partial.exists ? Status() : CheckOwner(env_, place(), attempt);
}

Status PosixStore::Remove(int64_t step, const Id& attempt) { return RemoveStep(env_, place(), attempt, step); }

void PosixStore::Tidy(int64_t step) { RemoveRecords(env_, place(), step); }

Status PosixStore::CleanUp(const CleanUpRequest& request) { return CleanUpAfter(env_, place(), request); }

Status PosixStore::MakeRoom(const CleanUpRequest& request, MadeRoom* made) {
  return RemoveFailed(env_, place(), request, made);
}

Status PosixStore::FindPart(const Identity& identity, Part* part) {
  *part = Part::kMissing;
  bool committed = false;
  DF_RETURN_IF_ERROR(IsCommitted(env_, place(), identity.step, identity.attempt, &committed));
  if (committed) {
    *part = Part::kCommitted;
    return {};
  }
  const std::string directory = PartialPath(place(), identity.step, identity.attempt);
  DF_RETURN_IF_ERROR(CheckPartial(env_, directory));
  PartialState state;
  RecordFiles files;
  DF_RETURN_IF_ERROR(ScanPartial(env_, place(), identity.step, identity.attempt, &state, &files));
  std::string bytes;
  std::string path;
  Record record;
  // A record that is missing, damaged or another one's is written again.
  const bool whole = PartialRecords(env_, directory, files).Read(identity.rank, &bytes, &path).ok() &&
                     DecodeRecord(bytes, path, &record).ok() && record.identity.rank == identity.rank &&
                     record.identity.SameCheckpoint(identity);
  if (whole) *part = Part::kSealed;
  return {};
}

Status PosixStore::Finish(int64_t step, const Id& attempt) {
  CommitRequest request;
  request.step = step;
  request.attempt = attempt;
  // The attempt died, perhaps with its node. So its files are read and their checksums compared before the commit.
  request.verify = true;
  // The dead job may have refused this step because its ranks differed. A training that went on from it would go on
  // from a mixture of models.
  request.refuse_diverged = true;
  Divergence known;
  DF_RETURN_IF_ERROR(KnownBefore(env_, place(), step, attempt, &known));
  request.known = &known;
  CommitOutcome outcome;
  DF_RETURN_IF_ERROR(Commit(request, &outcome));
  // Not before the commit is durable: a loss of power could bring the partial directory back, and without its records
  // it could not be finished. Nor if the step was committed before: an older version may have written it, whose
  // committed checkpoints consist of these very files.
  if (outcome.gathered && outcome.unsynced.ok()) Tidy(step);
  return outcome.unsynced;
}

Status PosixStore::Newest(Manifest* manifest, bool* found) {
  *found = false;
  std::vector<std::string> names;
  bool exists = false;
  DF_RETURN_IF_ERROR(env_->List(place(), &names, &exists));
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    const RunEntry entry = ParseRunEntry(name);
    if (entry.kind == EntryKind::kStep) steps.push_back(entry.step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  for (auto step = steps.begin(); step != steps.end() && !*found; ++step) {
    DF_RETURN_IF_ERROR(ReadCommitted(env_, place(), *step, manifest, found));
  }
  return {};
}

}  // namespace deepfreeze
