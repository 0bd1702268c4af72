#include "store/dir_meeting.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "format/names.h"
#include "store/commit.h"
#include "store/partial.h"

namespace deepfreeze {
namespace {

// Gives records, of one rank or of several, the name by which other ranks find them. `temporary`: path.tmp, if the
// caller has opened it. *seal is set after an exception too: memory may run out after the rename.
Status Publish(Env* env, const std::string& path, const std::string& records, Seal* seal,
               std::unique_ptr<File> temporary = nullptr) {
  struct Outcome {
    Seal* const seal;
    bool perhaps = false;
    ~Outcome() { *seal = perhaps ? Seal::kSeen : Seal::kUnseen; }
  } outcome{seal};
  if (temporary == nullptr) return ReplaceFile(env, path, records, true, &outcome.perhaps);
  return ReplaceFileBy(env, std::move(temporary), path, records, true, &outcome.perhaps);
}

}  // namespace

Identity DirMeeting::At(int64_t step) const {
  Identity at = identity_;
  at.step = step;
  return at;
}

Status DirMeeting::Sealed(const Record& record, Seal* seal) {
  *seal = Seal::kUnseen;
  SealedByAnother(record.identity.step);
  const std::string directory = PartialPath(run_dir_, record.identity.step, identity_.attempt);
  const std::string path = Join(directory, RecordName(identity_.rank));
  DF_RETURN_IF_ERROR(Publish(env_, path, EncodeRecord(record), seal));
  // Makes the names durable: the record's, and the model file's if this rank made it. The commit does not rely on this
  // sync: rank 0 syncs the directory once more before it renames it. A second sync of a file's pages may succeed
  // although the first one has lost them; a second sync of names does not, because names are in the file system's
  // journal, and a journal that has failed stays failed. So an error here does not fail the step. It may also come from
  // a directory that rank 0 has renamed or removed meanwhile.
  return env_->SyncDir(directory);
}

Status DirMeeting::SealedTogether(const Record& own, const NodeRanks& ranks, const std::string& records, Seal* seal) {
  const int64_t step = own.identity.step;
  const std::string directory = PartialPath(run_dir_, step, identity_.attempt);
  const std::string path = Join(directory, NodeRecordName(ranks));
  SealedByAnother(step);
  *seal = Seal::kSeen;  // another rank may write them
  std::unique_ptr<File> file;
  if (HasBegunTogether(step)) {
    *seal = Seal::kUnseen;
    // Emptied, and not made anew: while the name is free another rank would take it.
    DF_RETURN_IF_ERROR(env_->Open(path + ".tmp", OpenMode::kTruncate, &file));
  } else {
    const Status made = env_->Open(path + ".tmp", OpenMode::kNew, &file);
    if (made.error() == EEXIST) {
      *seal = Seal::kByAnother;
      return {};
    }
    if (!made.ok()) {
      const Status alone = Sealed(own, seal);
      if (decides() || alone.ok()) return alone;
      // Rank 0 heeds this only while a record is missing.
      if (!alone.transient()) Answer(step, alone.message());
      *seal = Seal::kSeen;
      return alone;
    }
    const MutexLock lock(&mutex_);
    together_.insert(step);
  }
  DF_RETURN_IF_ERROR(Publish(env_, path, records, seal, std::move(file)));
  return env_->SyncDir(directory);
}

bool DirMeeting::HasBegunTogether(int64_t step) {
  const MutexLock lock(&mutex_);
  return together_.count(step) > 0;
}

Status DirMeeting::Failed(int64_t step, const std::string& why) {
  if (decides()) {
    const std::string path = Join(run_dir_, FailedStepName(step, identity_.attempt));
    return WriteFailure(env_, path, OfRank(step, identity_.rank, why));
  }
  // An error shows when the marker is written.
  (void)env_->MakeDir(PartialPath(run_dir_, step, identity_.attempt), 0777).ok();
  return MarkFailed(env_, run_dir_, At(step), why);
}

Status DirMeeting::Superseded(int64_t step, int64_t by) {
  // The others answer there.
  (void)env_->MakeDir(PartialPath(run_dir_, step, identity_.attempt), 0777).ok();
  return WriteFailure(env_, Join(run_dir_, FailedStepName(step, identity_.attempt)), SupersededText(by));
}

std::string DirMeeting::OfRank(int64_t step, uint32_t rank, const std::string& text) const {
  const std::string lead = Join(run_dir_, StepName(step)) + ": rank ";
  const bool named = text.compare(0, lead.size(), lead) == 0 && text.find(" failed: ") != std::string::npos;
  return named ? text : lead + std::to_string(rank) + " failed: " + text;
}

void DirMeeting::Answer(int64_t step, const std::string& why) {
  // The partial directory is not made for it: rank 0 may have removed it.
  (void)MarkFailed(env_, run_dir_, At(step), why).ok();
}

void DirMeeting::Beat(int64_t step, uint64_t beat) {
  const std::string directory = PartialPath(run_dir_, step, identity_.attempt);
  const std::string path = Join(directory, AliveName(identity_.rank, beat));
  // The number is in the name, so a beat costs one rename, and whoever calls the roll sees it.
  if (beat > 1 && env_->Rename(Join(directory, AliveName(identity_.rank, beat - 1)), path).ok()) return;
  std::unique_ptr<File> file;
  (void)env_->Open(path, OpenMode::kUpdate, &file).ok();
}

Status DirMeeting::Look(int64_t step, Verdict* verdict, std::string* why) {
  *verdict = Verdict::kPending;
  bool committed = false;
  // Opens the run's directory anew, for the names below too.
  DF_RETURN_IF_ERROR(IsCommitted(env_, run_dir_, step, identity_.attempt, &committed));
  if (!committed) {
    const std::string failed = Join(run_dir_, FailedStepName(step, identity_.attempt));
    FileInfo info;
    DF_RETURN_IF_ERROR(env_->Stat(failed, &info));
    if (info.exists) {
      DF_RETURN_IF_ERROR(ReadTold(step, failed, verdict, why));
      Answer(step, *why);
    } else {
      DF_RETURN_IF_ERROR(WasReplaced(step, &committed));
    }
  }
  if (committed) *verdict = Verdict::kCommitted;
  if (*verdict != Verdict::kPending) Ended(step, committed);
  return {};
}

Status DirMeeting::ReadTold(int64_t step, const std::string& path, Verdict* verdict, std::string* why) {
  std::string text;
  int64_t by = 0;
  DF_RETURN_IF_ERROR(ReadFailure(env_, path, &text));
  // A full store may have had no room for the text. If the step has failed, rank 0 says so itself.
  if (text.empty()) DF_RETURN_IF_ERROR(NewestCommitted(step, &by));
  if (by > step) text = SupersededText(by);
  *verdict = ParseSuperseded(text, &by) ? Verdict::kSuperseded : Verdict::kFailed;
  *why = *verdict == Verdict::kSuperseded ? text : OfRank(step, 0, DescribeFailure(env_, path));
  return {};
}

void DirMeeting::SealedByAnother(int64_t step) {
  if (decides()) return;
  const MutexLock lock(&mutex_);
  sealed_.insert(step);
}

void DirMeeting::Ended(int64_t step, bool committed) {
  const MutexLock lock(&mutex_);
  sealed_.erase(step);
  together_.erase(step);
  if (committed) committed_ = std::max(committed_, step);
}

Status DirMeeting::WasReplaced(int64_t step, bool* removed) {
  {
    const MutexLock lock(&mutex_);
    if (sealed_.count(step) == 0 || (sealed_.upper_bound(step) == sealed_.end() && committed_ <= step)) return {};
  }
  FileInfo partial;
  DF_RETURN_IF_ERROR(env_->Stat(PartialPath(run_dir_, step, identity_.attempt), &partial));
  if (partial.exists) return {};
  int64_t newest = -1;
  DF_RETURN_IF_ERROR(NewestCommitted(step, &newest));
  *removed = newest > step;
  return {};
}

Status DirMeeting::NewestCommitted(int64_t step, int64_t* newest) {
  std::vector<int64_t> newer;
  {
    const MutexLock lock(&mutex_);
    *newest = committed_;
    newer.assign(sealed_.upper_bound(step), sealed_.end());
  }
  // The newest first: it is there if any is.
  for (auto one = newer.rbegin(); one != newer.rend() && *newest <= step; ++one) {
    bool committed = false;
    DF_RETURN_IF_ERROR(IsCommitted(env_, run_dir_, *one, identity_.attempt, &committed));
    if (committed) *newest = *one;
  }
  return {};
}

Status DirMeeting::Roll(int64_t step, PartialState* roll, std::string* failure) {
  failure->clear();
  DF_RETURN_IF_ERROR(ScanPartial(env_, run_dir_, step, identity_.attempt, roll));
  if (roll->failed.empty()) return {};
  const uint32_t rank = roll->failed.front();
  const std::string marker = Join(PartialPath(run_dir_, step, identity_.attempt), FailedName(rank));
  const std::string text = DescribeFailure(env_, marker);
  int64_t by = 0;
  if (ParseSuperseded(text, &by)) return {};  // an answer to rank 0, whose verdict the next look finds
  *failure = OfRank(step, rank, text);
  if (!decides()) Answer(step, *failure);
  return {};
}

}  // namespace deepfreeze
