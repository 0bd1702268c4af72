#include "graph/capture_area.h"

#include <algorithm>
#include <map>

#include "base/copy.h"

namespace deepfreeze {
namespace {

struct Registry {
  std::mutex mutex;
  uint64_t next = 1;
  std::map<uint64_t, std::shared_ptr<CaptureArea>> areas;
};

Registry& TheRegistry() {
  static Registry* registry = new Registry;  // never destroyed: a graph may still run while the process exits
  return *registry;
}

}  // namespace

uint64_t CaptureArea::Register(std::shared_ptr<CaptureArea> area) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.areas[registry.next] = std::move(area);
  return registry.next++;
}

std::shared_ptr<CaptureArea> CaptureArea::Find(uint64_t number) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  const auto found = registry.areas.find(number);
  return found == registry.areas.end() ? nullptr : found->second;
}

void CaptureArea::Forget(uint64_t number) {
  Registry& registry = TheRegistry();
  std::lock_guard<std::mutex> lock(registry.mutex);
  registry.areas.erase(number);
}

void CaptureArea::SetGroup(size_t group, std::vector<Piece> pieces) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (groups_.size() <= group) groups_.resize(group + 1);
  groups_[group] = std::make_shared<const std::vector<Piece>>(std::move(pieces));
}

void CaptureArea::Attach(const std::shared_ptr<Engine>& engine, uint64_t timeout_ms) {
  std::lock_guard<std::mutex> lock(mutex_);
  engine_ = engine;
  attached_ = engine != nullptr;
  timeout_ms_ = timeout_ms;
  if (base_ != own_) base_ = nullptr;  // another engine's; what is in the area's own memory is still to be collected
}

Status CaptureArea::Acquire() {
  if (attached_) {
    const std::shared_ptr<Engine> engine = engine_.lock();
    if (engine == nullptr) return Status(Code::kClosed, "the engine is closed");
    return engine->Reserve(timeout_ms_, &base_);
  }
  uint64_t size = 1;
  for (const auto& group : groups_) {
    if (group == nullptr) continue;
    for (const Piece& piece : *group) size = std::max(size, piece.place + piece.size);
  }
  if (own_ != nullptr && own_size_ != size) DropOwn();
  if (own_ == nullptr) own_ = env_->AllocatePages(size);
  if (own_ == nullptr) return Status(Code::kIo, "no memory for a capture of " + std::to_string(size) + " bytes");
  own_size_ = size;
  base_ = own_;
  return {};
}

Status CaptureArea::Capture(size_t group, const std::vector<Source>& sources) {
  std::shared_ptr<const std::vector<Piece>> pieces;
  char* base = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (group >= groups_.size() || groups_[group] == nullptr) {
      return Status(Code::kInvalid, "capture: no group " + std::to_string(group));
    }
    pieces = groups_[group];
    if (failure_.ok() && base_ == nullptr) failure_ = Acquire();
    if (!failure_.ok()) return {};
    base = base_;
  }
  for (const Piece& piece : *pieces) {
    if (piece.source >= sources.size() || piece.start + piece.size > sources[piece.source].size) {
      return Status(Code::kInvalid, "capture: group " + std::to_string(group) + " has no " +
                                        std::to_string(piece.size) + " bytes at " + std::to_string(piece.start) +
                                        " of source " + std::to_string(piece.source));
    }
    CopyPastCache(base + piece.place, sources[piece.source].data + piece.start, piece.size);
  }
  return {};
}

Status CaptureArea::Collect(char** base, bool* own) {
  std::lock_guard<std::mutex> lock(mutex_);
  Status failure;
  std::swap(failure, failure_);
  DF_RETURN_IF_ERROR(failure);
  if (base_ == nullptr) return Status(Code::kInvalid, "collect: nothing was captured");
  *base = base_;
  *own = base_ == own_;
  base_ = nullptr;
  return {};
}

void CaptureArea::DropOwn() {
  if (own_ != nullptr) env_->FreePages(own_, own_size_);
  if (base_ == own_) base_ = nullptr;
  own_ = nullptr;
}

}  // namespace deepfreeze
