#include "engine/rescue.h"

#include "engine/checksum.h"
#include "format/names.h"
#include "local/slot_store.h"
#include "store/commit.h"
#include "store/dir_meeting.h"
#include "store/partial.h"

namespace deepfreeze {
namespace {

constexpr size_t kRescueBlock = size_t{4} << 20;

}  // namespace

Status RescueSlot(Env* env, const std::string& path, const std::string& run_dir) {
  WholeSlot slot;
  DF_RETURN_IF_ERROR(OpenSlot(env, path, &slot));
  const Identity& identity = slot.header.identity;
  bool committed = false;
  DF_RETURN_IF_ERROR(IsCommitted(env, run_dir, identity.step, identity.attempt, &committed));
  if (committed) return {};
  const std::string directory = PartialPath(run_dir, identity.step, identity.attempt);
  DF_RETURN_IF_ERROR(CheckPartial(env, directory));
  const std::string record_path = Join(directory, RecordName(identity.rank));
  std::string bytes;
  Record record;
  if (ReadSmallFile(env, record_path, kMaxRecordSize, &bytes).ok() && DecodeRecord(bytes, record_path, &record).ok() &&
      record.identity.rank == identity.rank && record.identity.SameCheckpoint(identity)) {
    return {};  // the record was published before the attempt died, so the rank's bytes are durable
  }
  PartialWriter partial;
  DF_RETURN_IF_ERROR(partial.Open(env, run_dir, identity));
  Block block(env, kRescueBlock);
  const Sink to{partial.file(), partial.direct(), &block};
  for (size_t i = 0; i < slot.extents.size(); ++i) {
    DF_RETURN_IF_ERROR(CopyVerified(slot.file.get(), slot.places[i], to, slot.extents[i]));
  }
  DF_RETURN_IF_ERROR(partial.Sync());
  bool perhaps = false;
  DirMeeting meeting(env, run_dir, identity);
  return meeting.Sealed(Record{identity, slot.extents, slot.private_data, slot.values}, &perhaps);
}

}  // namespace deepfreeze
