// All names of files and directories (docs/format.md, "Names") are made and parsed here and nowhere else. Steps are 0
// or more: of other ones the names have no meaning, and the parsers refuse them.
#ifndef DEEPFREEZE_FORMAT_NAMES_H_
#define DEEPFREEZE_FORMAT_NAMES_H_

#include <cstdint>
#include <string>

#include "base/coding.h"

namespace deepfreeze {

constexpr char kModelName[] = "model.weights.h5";
constexpr char kRecordsName[] = "records";
constexpr char kManifestName[] = "manifest.json";
constexpr char kOwnerName[] = "owner";

std::string Join(const std::string& directory, const std::string& name);  // directory/name

std::string StepName(int64_t step);                           // step-0000000040
std::string PartialName(int64_t step, const Id& attempt);     // step-0000000040.partial-ATTEMPT
std::string FailedStepName(int64_t step, const Id& attempt);  // step-0000000040.failed-ATTEMPT
std::string TrashName(int64_t step, const Id& attempt);       // .trash-step-0000000040-ATTEMPT
std::string RecordName(uint32_t rank);                        // rank-00003.record
// ranks-00001-00007-2.record: the records of the ranks 1, 3, 5 and 7, which are on one node
struct NodeRanks {
  uint32_t first = 0;
  uint32_t last = 0;
  uint32_t distance = 1;
  bool Has(uint32_t rank) const { return rank >= first && rank <= last && (rank - first) % distance == 0; }
  uint32_t count() const { return (last - first) / distance + 1; }
};
constexpr uint32_t kMostOnNode = 4096;  // ranks in one such name
std::string NodeRecordName(const NodeRanks& ranks);
std::string FailedName(uint32_t rank);                  // rank-00003.failed
std::string AliveName(uint32_t rank, uint64_t number);  // rank-00003-7.alive
// rank-00003-ATTEMPT-0.slot. With the attempt in the name, no attempt can open another attempt's slot by mistake.
std::string SlotName(uint32_t rank, const Id& attempt, uint32_t index);
std::string UserDirName(uint32_t uid);  // deepfreeze-UID
// deepfreeze-UID-ATTEMPT-00003.looks: the page of the node whose lowest rank is 3
std::string NodePageName(uint32_t uid, const Id& attempt, uint32_t lowest);

enum class EntryKind { kOther, kStep, kPartial, kFailed, kTrash };

// A name in a run directory, taken apart. `attempt` is set for all kinds but kStep and kOther, `step` for all but
// kOther. A name that no function above makes is kOther, for example step-40 (too few digits).
struct RunEntry {
  EntryKind kind = EntryKind::kOther;
  int64_t step = 0;
  Id attempt{};
};
RunEntry ParseRunEntry(const std::string& name);

// RETURN false unless name is exactly RecordName(*rank), NodeRecordName(*ranks), FailedName(*rank) or AliveName(*rank,
// *number). What they point to is undefined then.
bool ParseRecordName(const std::string& name, uint32_t* rank);
bool ParseNodeRecordName(const std::string& name, NodeRanks* ranks);
bool ParseFailedName(const std::string& name, uint32_t* rank);
bool ParseAliveName(const std::string& name, uint32_t* rank, uint64_t* number);
// RETURNS whether a file of this name may be in a partial directory and not in a committed checkpoint: a failure
// marker, a heartbeat, or a file NAME.tmp whose replacement was interrupted.
bool IsLeftover(const std::string& name);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_FORMAT_NAMES_H_
