#include "store/retention.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "format/manifest.h"
#include "format/names.h"
#include "store/commit.h"

namespace deepfreeze {

Status RemoveTree(Env* env, const std::string& path) {
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
  return env->Rename(Join(run_dir, name), trash);
}

Status Retain(Env* env, const std::string& run_dir, int64_t step, const Id& attempt, uint32_t keep) {
  std::vector<std::string> names;
  bool exists = false;
  DF_RETURN_IF_ERROR(env->List(run_dir, &names, &exists));
  std::vector<int64_t> steps;
  std::vector<std::string> trash;
  for (const std::string& name : names) {
    const RunEntry entry = ParseRunEntry(name);
    if (entry.kind == EntryKind::kTrash) trash.push_back(name);
    if (entry.kind == EntryKind::kStep && entry.step <= step) steps.push_back(entry.step);
    if (entry.kind == EntryKind::kPartial && entry.attempt == attempt && entry.step < step) {
      DF_RETURN_IF_ERROR(MoveToTrash(env, run_dir, name, entry.step, attempt));
      trash.push_back(TrashName(entry.step, attempt));
    }
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  uint32_t kept = 0;
  for (const int64_t old : steps) {
    // A directory without a valid manifest is no checkpoint, and not this function's to judge.
    Manifest manifest;
    if (!ReadCommitted(env, run_dir, old, &manifest) || ++kept <= keep) continue;
    DF_RETURN_IF_ERROR(MoveToTrash(env, run_dir, StepName(old), old, manifest.identity.attempt));
    trash.push_back(TrashName(old, manifest.identity.attempt));
  }
  if (trash.empty()) return {};
  // The new names must be durable before their contents go, or a crash could bring the old name back half-empty.
  DF_RETURN_IF_ERROR(env->SyncDir(run_dir));
  for (const std::string& name : trash) DF_RETURN_IF_ERROR(RemoveTree(env, Join(run_dir, name)));
  return {};
}

}  // namespace deepfreeze
