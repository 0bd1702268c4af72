#include "store/records.h"

#include <vector>

#include "format/names.h"

namespace deepfreeze {

Status RecordsWriter::Add(const std::string& record) {
  if (file_ == nullptr) {
    DF_RETURN_IF_ERROR(env_->Open(Join(directory_, kRecordsName) + ".tmp", OpenMode::kTruncate, &file_));
  }
  DF_RETURN_IF_ERROR(WriteFull(file_.get(), size_, record.data(), record.size()));
  size_ += record.size();
  return {};
}

Status RecordsWriter::Publish() {
  // Without this sync a loss of power could leave the name on an empty file.
  DF_RETURN_IF_ERROR(file_->Sync());
  DF_RETURN_IF_ERROR(file_->Close());
  const std::string path = Join(directory_, kRecordsName);
  return Move(env_, path + ".tmp", path);
}

void RemoveRecords(Env* env, const std::string& run_dir, int64_t step) {
  const std::string directory = Join(run_dir, StepName(step));
  std::vector<std::string> names;
  bool exists = false;
  if (!env->List(directory, &names, &exists).ok()) return;
  for (const std::string& name : names) {
    uint32_t rank = 0;
    if (ParseRecordName(name, &rank)) (void)env->Unlink(Join(directory, name)).ok();
  }
}

}  // namespace deepfreeze
