#include "store/retention.h"

#include <algorithm>
#include <functional>
#include <map>
#include <vector>

#include "format/manifest.h"
#include "format/names.h"
#include "store/commit.h"
#include "store/owner.h"
#include "store/partial.h"

namespace deepfreeze {

Status RemoveTree(Env* env, const std::string& path) {
  // A symbolic link is removed and not followed, because it leads to files outside of the run.
  FileInfo top;
  DF_RETURN_IF_ERROR(env->Stat(path, &top));
  if (top.exists && !top.is_directory) return env->Unlink(path);
  std::vector<std::string> names;
  bool exists = false;
  DF_RETURN_IF_ERROR(env->List(path, &names, &exists));
  if (!exists) return {};
  for (const std::string& name : names) {
    const std::string child = Join(path, name);
    FileInfo info;
    DF_RETURN_IF_ERROR(env->Stat(child, &info));
    DF_RETURN_IF_ERROR(info.is_directory ? RemoveTree(env, child) : env->Unlink(child));
  }
  return env->RemoveDir(path);
}

Status MoveToTrash(Env* env, const std::string& run_dir, const std::string& name, int64_t step, const Id& attempt) {
  const std::string trash = Join(run_dir, TrashName(step, attempt));
  DF_RETURN_IF_ERROR(RemoveTree(env, trash));
  return Move(env, Join(run_dir, name), trash);
}

namespace {

// Keeps the first failure of several calls, all of which are made.
void Keep(Status status, Status* first) {
  if (first->ok()) *first = std::move(status);
}

// A step of this attempt that is over and has left something in the run.
struct Failed {
  int64_t step = 0;
  bool partial = false;  // its partial directory
  bool told = false;     // the file by which rank 0 tells that the step has failed
};

// Whether rank 0 has told that the step has failed, and every other rank has answered by a marker in the partial
// directory.
Status AllKnow(Env* env, const std::string& run_dir, const CleanUpRequest& request, const Failed& failed,
               bool* all_know) {
  PartialState state;
  DF_RETURN_IF_ERROR(ScanPartial(env, run_dir, failed.step, request.attempt, &state));
  const auto answered = std::count_if(state.failed.begin(), state.failed.end(), [](uint32_t rank) { return rank > 0; });
  *all_know = failed.told && answered + 1 >= request.world;
  return {};
}

// Empties the directories that were renamed to trash. Their new names are made durable first: otherwise a loss of power
// could bring the old name back, of a directory that is half empty.
Status EmptyTrash(Env* env, const std::string& run_dir, const std::vector<std::string>& trash) {
  if (trash.empty()) return {};
  DF_RETURN_IF_ERROR(env->SyncDir(run_dir));
  Status first;
  for (const std::string& name : trash) Keep(RemoveTree(env, Join(run_dir, name)), &first);
  return first;
}

// Renames RUN/name to trash, and adds the trash's name to the list. After a failure, which is kept, the directory stays
// and the result is false.
bool Discard(Env* env, const std::string& run_dir, const std::string& name, int64_t step, const Id& attempt,
             std::vector<std::string>* trash, Status* first) {
  Status status = MoveToTrash(env, run_dir, name, step, attempt);
  const bool moved = status.ok();
  if (moved) trash->push_back(TrashName(step, attempt));
  Keep(std::move(status), first);
  return moved;
}

// *old: the steps of this attempt that are older than the request's step, are over, and have left something, the newest
// first. A newer step may be committed while an older one is on its way.
Status OldOnes(Env* env, const std::string& run_dir, const std::vector<std::string>& names,
               const CleanUpRequest& request, std::vector<Failed>* old) {
  std::map<int64_t, Failed, std::greater<>> steps;
  for (const std::string& name : names) {
    const RunEntry entry = ParseRunEntry(name);
    const bool left = entry.kind == EntryKind::kPartial || entry.kind == EntryKind::kFailed;
    if (!left || entry.attempt != request.attempt || entry.step >= request.step) continue;
    if (entry.kind == EntryKind::kPartial) {
      const Status made = CheckPartial(env, Join(run_dir, name));
      if (made.code() == Code::kInvalid) continue;  // this library did not make it
      DF_RETURN_IF_ERROR(made);
    }
    Failed& failed = steps[entry.step];
    failed.step = entry.step;
    (entry.kind == EntryKind::kPartial ? failed.partial : failed.told) = true;
  }
  for (const auto& [step, failed] : steps) {
    const auto& on_their_way = request.unfinished;
    const bool goes_on = std::find(on_their_way.begin(), on_their_way.end(), step) != on_their_way.end();
    if (failed.told || !goes_on) old->push_back(failed);
  }
  return {};
}

// Removes the file by which rank 0 has told that the step has failed, and one that it could not give that name.
Status Untell(Env* env, const std::string& run_dir, const CleanUpRequest& request, const Failed& failed) {
  if (!failed.told) return {};
  const std::string path = Join(run_dir, FailedStepName(failed.step, request.attempt));
  (void)env->Unlink(path + ".tmp").ok();
  return env->Unlink(path);
}

}  // namespace

Status CleanUpAfter(Env* env, const std::string& run_dir, const CleanUpRequest& request) {
  DF_RETURN_IF_ERROR(CheckOwner(env, run_dir, request.attempt));
  std::vector<std::string> names;
  bool exists = false;
  DF_RETURN_IF_ERROR(env->List(run_dir, &names, &exists));
  std::vector<std::string> trash;
  Status first;
  for (const std::string& name : names) {
    if (ParseRunEntry(name).kind == EntryKind::kTrash) trash.push_back(name);
  }
  uint32_t awaited = 0;
  std::vector<Failed> left;
  DF_RETURN_IF_ERROR(OldOnes(env, run_dir, names, request, &left));
  for (const Failed& old : left) {
    bool all_know = false;
    DF_RETURN_IF_ERROR(AllKnow(env, run_dir, request, old, &all_know));
    // A rank that has not seen yet that the step has failed, or is superseded, would take a step without a trace for
    // one that was committed and replaced. So all of it stays until every rank has answered. At most `backlog` steps
    // stay, as many as a rank can have unfinished: they must not pile up when an answer can't be written.
    if (!all_know && ++awaited <= request.backlog) continue;
    if (old.partial &&
        !Discard(env, run_dir, PartialName(old.step, request.attempt), old.step, request.attempt, &trash, &first)) {
      continue;
    }
    Keep(Untell(env, run_dir, request, old), &first);
  }
  Keep(EmptyTrash(env, run_dir, trash), &first);
  return first;
}

Status RemoveStep(Env* env, const std::string& run_dir, const Id& attempt, int64_t step) {
  DF_RETURN_IF_ERROR(CheckOwner(env, run_dir, attempt));
  // A directory without a valid manifest is no checkpoint, and is left to the next start of a job.
  Manifest manifest;
  bool counts = false;
  DF_RETURN_IF_ERROR(ReadCommitted(env, run_dir, step, &manifest, &counts));
  if (!counts) return {};
  const Id& written_by = manifest.identity.attempt;
  DF_RETURN_IF_ERROR(MoveToTrash(env, run_dir, StepName(step), step, written_by));
  return EmptyTrash(env, run_dir, {TrashName(step, written_by)});
}

Status RemoveFailed(Env* env, const std::string& run_dir, const CleanUpRequest& request, MadeRoom* made) {
  *made = MadeRoom();
  DF_RETURN_IF_ERROR(CheckOwner(env, run_dir, request.attempt));
  std::vector<std::string> names;
  bool exists = false;
  DF_RETURN_IF_ERROR(env->List(run_dir, &names, &exists));
  std::vector<std::string> trash;
  for (const std::string& name : names) {
    if (ParseRunEntry(name).kind == EntryKind::kTrash) trash.push_back(name);
  }
  std::vector<Failed> left;
  DF_RETURN_IF_ERROR(OldOnes(env, run_dir, names, request, &left));
  for (const Failed& old : left) {
    bool all_know = false;
    DF_RETURN_IF_ERROR(AllKnow(env, run_dir, request, old, &all_know));
    made->awaits = made->awaits || (old.told && !all_know);
    if (!all_know || !old.partial) continue;
    const std::string partial = PartialName(old.step, request.attempt);
    DF_RETURN_IF_ERROR(MoveToTrash(env, run_dir, partial, old.step, request.attempt));
    trash.push_back(TrashName(old.step, request.attempt));
    DF_RETURN_IF_ERROR(Untell(env, run_dir, request, old));
  }
  made->removed = !trash.empty();
  return EmptyTrash(env, run_dir, trash);
}

}  // namespace deepfreeze
