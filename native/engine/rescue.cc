#include "engine/rescue.h"

#include "engine/checksum.h"
#include "local/slot_store.h"

namespace deepfreeze {
namespace {

constexpr size_t kRescueBlock = size_t{4} << 20;

}  // namespace

Status RescueSlot(Env* env, const std::string& path, Store* store) {
  WholeSlot slot;
  DF_RETURN_IF_ERROR(OpenSlot(env, path, &slot));
  const Identity& identity = slot.header.identity;
  Part part = Part::kMissing;
  DF_RETURN_IF_ERROR(store->FindPart(identity, &part));
  if (part != Part::kMissing) return {};
  const std::unique_ptr<ShardWriter> shard = store->OpenShard(identity);
  DF_RETURN_IF_ERROR(shard->Begin(nullptr));
  Block block(env, kRescueBlock);
  const Sink to{nullptr, nullptr, shard.get(), &block};
  for (size_t i = 0; i < slot.extents.size(); ++i) {
    DF_RETURN_IF_ERROR(CopyVerified(slot.file.get(), slot.places[i], to, slot.extents[i]));
  }
  DF_RETURN_IF_ERROR(shard->Seal());
  Seal seal = Seal::kUnseen;
  return store->Meet(identity)->Sealed(Record{identity, slot.extents, slot.private_data, slot.values}, &seal);
}

}  // namespace deepfreeze
