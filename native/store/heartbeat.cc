#include "store/heartbeat.h"

#include <algorithm>
#include <utility>

#include "format/names.h"

namespace deepfreeze {

Heartbeat::Heartbeat(const std::string& run_dir, const Identity& identity)
    : directory_(PartialPath(run_dir, identity.step, identity.attempt)), rank_(identity.rank) {}

std::string Heartbeat::Path(uint64_t number) const { return Join(directory_, AliveName(rank_, number)); }

void Heartbeat::Beat(Env* env) {
  ++number_;
  if (number_ > 1 && env->Rename(Path(number_ - 1), Path(number_)).ok()) return;
  std::unique_ptr<File> file;
  (void)env->Open(Path(number_), OpenMode::kUpdate, &file).ok();
}

bool Pulse::Moved(const PartialState& state) {
  bool moved = state.present.size() > records_;
  records_ = std::max(records_, state.present.size());
  for (const auto& [rank, number] : state.alive) {
    const bool done = std::binary_search(state.present.begin(), state.present.end(), rank);
    moved = moved || (!done && number > beats_[rank]);
    beats_[rank] = std::max(beats_[rank], number);
  }
  return std::exchange(looked_, true) && moved;
}

}  // namespace deepfreeze
