#include "store/records.h"

#include <algorithm>

#include "base/coding.h"
#include "format/names.h"
#include "format/record.h"

namespace deepfreeze {

Status RecordsWriter::Add(const std::string& record) {
  if (file_ == nullptr) {
    DF_RETURN_IF_ERROR(OpenNew(env_, Join(directory_, kRecordsName) + ".tmp", &file_));
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

namespace {

// Takes apart the file that has the records of a node's ranks, one behind the other in their order.
Status SplitRecords(const std::string& all, uint32_t count, const std::string& path,
                    std::vector<std::string>* records) {
  size_t at = 0;
  for (; all.size() - at >= kRecordHeader; at += records->back().size()) {
    const uint64_t size = Get64(all.data() + at + kRecordSizeOffset);
    if (size < kRecordHeader || size > all.size() - at) break;
    records->push_back(all.substr(at, size));
  }
  if (at == all.size() && records->size() == count) return {};
  return Malformed(path, std::to_string(count) + " records", "others, or other bytes behind them");
}

}  // namespace

Status PartialRecords::Read(uint32_t rank, std::string* bytes, std::string* path) {
  *path = Join(directory_, RecordName(rank));
  if (std::binary_search(files_.own.begin(), files_.own.end(), rank)) {
    return ReadSmallFile(env_, *path, kMaxRecordSize, bytes);
  }
  const auto node = std::find_if(files_.nodes.begin(), files_.nodes.end(),
                                 [rank](const NodeRanks& ranks) { return ranks.Has(rank); });
  if (node == files_.nodes.end()) return Malformed(directory_, "a record of rank " + std::to_string(rank), "none");
  *path = Join(directory_, NodeRecordName(*node));
  std::vector<std::string>& records = nodes_[*path];
  if (records.empty()) {
    std::string all;
    DF_RETURN_IF_ERROR(ReadSmallFile(env_, *path, node->count() * kMaxNodeRecord, &all));
    DF_RETURN_IF_ERROR(SplitRecords(all, node->count(), *path, &records));
  }
  *bytes = records[(rank - node->first) / node->distance];
  if (rank == node->last) nodes_.erase(*path);
  return {};
}

void RemoveRecords(Env* env, const std::string& run_dir, int64_t step) {
  const std::string directory = Join(run_dir, StepName(step));
  std::vector<std::string> names;
  bool exists = false;
  if (!env->List(directory, &names, &exists).ok()) return;
  for (const std::string& name : names) {
    uint32_t rank = 0;
    NodeRanks ranks;
    // A leftover is of a rank that was late: its record was in its node's file already.
    if (ParseRecordName(name, &rank) || ParseNodeRecordName(name, &ranks) || IsLeftover(name)) {
      (void)env->Unlink(Join(directory, name)).ok();
    }
  }
}

}  // namespace deepfreeze
