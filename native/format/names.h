// Every file name, made and parsed here and nowhere else. docs/format.md, "Names".
#ifndef DEEPFREEZE_FORMAT_NAMES_H_
#define DEEPFREEZE_FORMAT_NAMES_H_

#include <cstdint>
#include <string>

#include "base/coding.h"

namespace deepfreeze {

constexpr char kModelName[] = "model.weights.h5";
constexpr char kManifestName[] = "manifest.json";
constexpr char kOwnerName[] = "owner";

std::string Join(const std::string& directory, const std::string& name);

std::string StepName(int64_t step);                        // step-0000000040
std::string PartialName(int64_t step, const Id& attempt);  // step-0000000040.partial-ATTEMPT
std::string TrashName(int64_t step, const Id& attempt);    // .trash-step-0000000040-ATTEMPT
std::string RecordName(uint32_t rank);                     // rank-00003.record
std::string FailedName(uint32_t rank);                     // rank-00003.failed
std::string AliveName(uint32_t rank, uint64_t number);     // rank-00003-7.alive
// rank-00003-ATTEMPT-0.slot: one attempt never opens, writes or removes another one's.
std::string SlotName(uint32_t rank, const Id& attempt, uint32_t index);
std::string UserDirName(uint32_t uid);  // deepfreeze-UID

enum class EntryKind { kOther, kStep, kPartial, kTrash };

// An entry of a run directory. attempt is set for kPartial and kTrash. Names that this file would not make are kOther.
struct RunEntry {
  EntryKind kind = EntryKind::kOther;
  int64_t step = 0;
  Id attempt{};
};
RunEntry ParseRunEntry(const std::string& name);

// False unless name is exactly RecordName(*rank), or FailedName(*rank).
bool ParseRecordName(const std::string& name, uint32_t* rank);
bool ParseFailedName(const std::string& name, uint32_t* rank);
bool ParseAliveName(const std::string& name, uint32_t* rank, uint64_t* number);
// Names of files that belong to a partial directory only: markers of failed ranks, heartbeats, and files that were
// being replaced.
bool IsLeftover(const std::string& name);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_FORMAT_NAMES_H_
