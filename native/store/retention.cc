#include "store/retention.h"

#include <algorithm>
#include <functional>
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

// Whether every rank has left a marker of the failure in the step's partial directory.
Status AllKnow(Env* env, const CleanUpRequest& request, int64_t step, bool* all_know) {
  PartialState state;
  DF_RETURN_IF_ERROR(ScanPartial(env, request.run_dir, step, request.attempt, &state));
  *all_know = state.failed.size() >= request.world;
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

// Renames RUN/name to trash, and adds the trash's name to the list. A failure is kept, and the directory stays.
void Discard(Env* env, const std::string& run_dir, const std::string& name, int64_t step, const Id& attempt,
             std::vector<std::string>* trash, Status* first) {
  Status status = MoveToTrash(env, run_dir, name, step, attempt);
  if (status.ok()) trash->push_back(TrashName(step, attempt));
  Keep(std::move(status), first);
}

// The steps of this attempt's partial directories that are older than the request's step, the newest first.
std::vector<int64_t> OldPartials(const std::vector<std::string>& names, const CleanUpRequest& request) {
  std::vector<int64_t> steps;
  for (const std::string& name : names) {
    const RunEntry entry = ParseRunEntry(name);
    if (entry.kind == EntryKind::kPartial && entry.attempt == request.attempt && entry.step < request.step) {
      steps.push_back(entry.step);
    }
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

}  // namespace

Status CleanUp(Env* env, const CleanUpRequest& request) {
  DF_RETURN_IF_ERROR(CheckOwner(env, request.run_dir, request.attempt));
  const std::string& run_dir = request.run_dir;
  std::vector<std::string> names;
  bool exists = false;
  DF_RETURN_IF_ERROR(env->List(run_dir, &names, &exists));
  std::vector<std::string> trash;
  Status first;
  for (const std::string& name : names) {
    if (ParseRunEntry(name).kind == EntryKind::kTrash) trash.push_back(name);
  }
  uint32_t awaited = 0;
  for (const int64_t old : OldPartials(names, request)) {
    bool all_know = false;
    DF_RETURN_IF_ERROR(AllKnow(env, request, old, &all_know));
    // Steps are committed in order, so this older step has failed. A rank that has not seen the failure yet would take
    // a missing directory for a step that was committed and replaced. So the directory stays until every rank has left
    // a marker. At most `backlog` directories stay, as many as a rank can have unfinished: they must not pile up when a
    // marker can't be written.
    if (!all_know && ++awaited <= request.backlog) continue;
    Discard(env, run_dir, PartialName(old, request.attempt), old, request.attempt, &trash, &first);
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

Status RemoveFailed(Env* env, const CleanUpRequest& request, bool* removed) {
  *removed = false;
  DF_RETURN_IF_ERROR(CheckOwner(env, request.run_dir, request.attempt));
  std::vector<std::string> names;
  bool exists = false;
  DF_RETURN_IF_ERROR(env->List(request.run_dir, &names, &exists));
  std::vector<std::string> trash;
  for (const int64_t old : OldPartials(names, request)) {
    bool all_know = false;
    DF_RETURN_IF_ERROR(AllKnow(env, request, old, &all_know));
    if (!all_know) continue;
    DF_RETURN_IF_ERROR(MoveToTrash(env, request.run_dir, PartialName(old, request.attempt), old, request.attempt));
    trash.push_back(TrashName(old, request.attempt));
  }
  *removed = !trash.empty();
  return EmptyTrash(env, request.run_dir, trash);
}

}  // namespace deepfreeze
