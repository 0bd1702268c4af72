#include "graph/capture_area.h"

#include <algorithm>
#include <atomic>
#include <map>

#include "base/copy.h"
#include "base/mutex.h"
#include "engine/checksum.h"

namespace deepfreeze {
namespace {

// Bytes whose copy nobody notices.
constexpr uint64_t kLittle = uint64_t{1} << 20;

// The areas of one process. A forked child makes a registry of its own, because the lock of its copy of the parent's
// may have been held at the fork, and would then never be free.
struct Registry {
  Env* const env;
  const int64_t process;
  const int64_t parent;  // the process that this one was forked from: it made the areas with numbers below `first`
  const uint64_t first;
  Mutex mutex;
  std::atomic<uint64_t> next{first};  // read without the mutex by a process that is forked
  std::map<uint64_t, std::shared_ptr<CaptureArea>> areas GUARDED_BY(mutex);
};

std::atomic<Registry*> current{nullptr};  // never destroyed: a graph may still run while the process exits

// The registry of this process, which is made if there is none. Without `env` the result is null if neither this
// process nor one that it was forked from has had an area.
Registry* TheRegistry(Env* env = nullptr) {
  Registry* registry = current;
  if (registry != nullptr) env = registry->env;
  if (env == nullptr || (registry != nullptr && registry->process == env->ProcessId())) return registry;
  const int64_t parent = registry == nullptr ? 0 : registry->process;
  const uint64_t first = registry == nullptr ? 1 : registry->next.load();
  auto* own = new Registry{env, env->ProcessId(), parent, first, {}, {first}, {}};
  if (current.compare_exchange_strong(registry, own)) return own;
  delete own;  // another thread was faster
  return registry;
}

Status CheckPlace(size_t group, const CaptureArea::Piece& piece, uint64_t size) {
  if (piece.size <= size && piece.place <= size - piece.size) return {};
  return Status::FourPart(Code::kInvalid, "capture: group " + std::to_string(group),
                          "pieces inside of a memory of " + std::to_string(size) + " bytes",
                          std::to_string(piece.size) + " bytes at " + std::to_string(piece.place),
                          "Give the group the places of the engine's plan");
}

Status CheckSource(size_t group, const CaptureArea::Piece& piece, const std::vector<CaptureArea::Source>& sources) {
  const uint64_t size = piece.source < sources.size() ? sources[piece.source].size : 0;
  if (piece.source < sources.size() && piece.size <= size && piece.start <= size - piece.size) return {};
  return Status(Code::kInvalid, "capture: group " + std::to_string(group) + " has no " + std::to_string(piece.size) +
                                    " bytes at " + std::to_string(piece.start) + " of source " +
                                    std::to_string(piece.source));
}

// Copies n bytes to memory of the engine, extent by extent as the engine will cut them: each as soon as no older
// checkpoint needs its memory. with_sums: the copy also computes the checksums of the extents, and notes them.
Status CopyToEngine(Engine* engine, uint64_t timeout_ms, bool with_sums, char* to, const char* from, uint64_t n) {
  engine->captured_sums()->Forget(to, n);  // of a capture that nobody has submitted
  const uint64_t chunk = engine->options().chunk_bytes;
  std::vector<CapturedSums::Sum> sums;
  if (with_sums) sums.reserve(CountExtents(n, chunk));
  for (uint64_t at = 0; at < n; at += chunk) {
    const uint64_t size = std::min(chunk, n - at);
    DF_RETURN_IF_ERROR(engine->AwaitParts(to + at, size, timeout_ms));
    if (with_sums) {
      sums.push_back({to + at, size, CopyAndChecksum(0, to + at, from + at, size)});
    } else {
      CopyPastCache(to + at, from + at, size);
    }
  }
  if (with_sums) engine->captured_sums()->Note(sums);
  return {};
}

}  // namespace

uint64_t CaptureArea::Register(std::shared_ptr<CaptureArea> area) {
  Registry* registry = TheRegistry(area->env_);
  const MutexLock lock(&registry->mutex);
  const uint64_t number = registry->next++;
  registry->areas[number] = std::move(area);
  return number;
}

Status CaptureArea::Find(const char* call, uint64_t number, std::shared_ptr<CaptureArea>* area) {
  area->reset();
  Registry* registry = TheRegistry();
  if (registry == nullptr) return {};
  if (number < registry->first) return CheckProcess(registry->env, registry->parent, call, "capture area");
  const MutexLock lock(&registry->mutex);
  const auto found = registry->areas.find(number);
  if (found != registry->areas.end()) *area = found->second;
  return {};
}

std::vector<std::shared_ptr<Pages>> CaptureArea::MemoryOf(const std::vector<Region>& regions) {
  std::vector<std::shared_ptr<Pages>> memory;
  Registry* registry = TheRegistry();
  if (registry == nullptr) return memory;
  const MutexLock lock(&registry->mutex);
  for (const auto& [number, area] : registry->areas) {
    const MutexLock own_lock(&area->own_mutex_);
    const Pages* own = area->own_.get();
    const bool used = own != nullptr && std::any_of(regions.begin(), regions.end(), [&](const Region& region) {
                        return region.data >= own->data() && region.data < own->data() + own->size();
                      });
    if (used) memory.push_back(area->own_);
  }
  return memory;
}

void CaptureArea::Leave(const std::vector<const Pages*>& memory) {
  Registry* registry = TheRegistry();
  if (registry == nullptr || memory.empty()) return;
  std::vector<std::shared_ptr<CaptureArea>> areas;
  {
    const MutexLock lock(&registry->mutex);
    for (const auto& [number, area] : registry->areas) {
      const MutexLock own_lock(&area->own_mutex_);
      if (area->own_ != nullptr && std::count(memory.begin(), memory.end(), area->own_.get()) > 0) {
        areas.push_back(area);
      }
    }
  }
  for (const std::shared_ptr<CaptureArea>& area : areas) {
    const MutexLock lock(&area->mutex_);
    if (area->attached_ && !area->InOwn()) area->SetOwn(nullptr);
  }
}

void CaptureArea::Forget(uint64_t number) {
  Registry* registry = TheRegistry();
  if (registry == nullptr || number < registry->first) return;
  const MutexLock lock(&registry->mutex);
  registry->areas.erase(number);
}

Status CaptureArea::SetGroup(size_t group, std::vector<Piece> pieces) {
  for (const Piece& piece : pieces) DF_RETURN_IF_ERROR(CheckPlace(group, piece, kMaxFileSize));
  const MutexLock lock(&mutex_);
  if (groups_.size() <= group) groups_.resize(group + 1);
  groups_[group].pieces = std::make_shared<const std::vector<Piece>>(std::move(pieces));
  return {};
}

Status CaptureArea::CheckGroup(const char* call, size_t group) {
  if (group < groups_.size() && groups_[group].pieces != nullptr) return {};
  return Status(Code::kInvalid, std::string(call) + ": no group " + std::to_string(group));
}

Status CaptureArea::SetLate(size_t group, bool late) {
  const MutexLock lock(&mutex_);
  DF_RETURN_IF_ERROR(CheckGroup("late", group));
  groups_[group].late = late;
  return {};
}

uint64_t CaptureArea::Held() {
  const MutexLock lock(&mutex_);
  return static_cast<uint64_t>(
      std::count_if(groups_.begin(), groups_.end(), [](const Group& group) { return group.held != nullptr; }));
}

Status CaptureArea::GetNote(size_t group, Note* note) {
  const MutexLock lock(&mutex_);
  DF_RETURN_IF_ERROR(CheckGroup("note", group));
  const Group& of = groups_[group];
  *note = {};
  note->apart = of.apart;
  if (begun_ == 0 || of.at < begun_ || ended_ <= begun_) return {};
  note->updated = static_cast<double>(of.at - begun_) / static_cast<double>(ended_ - begun_);
  return {};
}

void CaptureArea::ReleaseHeld() {
  for (Group& group : groups_) group.held.reset();
}

void CaptureArea::Discard() {
  const MutexLock lock(&mutex_);
  ReleaseHeld();
  failure_ = {};
  base_ = nullptr;
}

void CaptureArea::Attach(const std::shared_ptr<Engine>& engine, uint64_t timeout_ms) {
  const MutexLock lock(&mutex_);
  marks_.Watch(engine);
  engine_ = engine;
  attached_ = engine != nullptr;
  timeout_ms_ = timeout_ms;
  if (InOwn()) return;  // what is in the area's own memory is still to be collected
  base_ = nullptr;      // another engine's
  ReleaseHeld();
}

Status CaptureArea::Acquire() {
  if (attached_) {
    const std::shared_ptr<Engine> engine = engine_.lock();
    if (engine == nullptr) return Status(Code::kClosed, "the engine is closed");
    DF_RETURN_IF_ERROR(engine->AwaitMemory(timeout_ms_, &base_));
    size_ = engine->CaptureSize();
    with_sums_ = engine->SumsInCopy();
    return {};
  }
  uint64_t size = 1;
  for (const auto& group : groups_) {
    if (group.pieces == nullptr) continue;
    for (const Piece& piece : *group.pieces) size = std::max(size, piece.place + piece.size);
  }
  if (own() != nullptr && own()->size() != size) SetOwn(nullptr);  // first, for there may be room for one alone
  if (own() == nullptr) SetOwn(Pages::Allocate(env_, size));
  if (own() == nullptr) return Status(Code::kIo, "no memory for a capture of " + std::to_string(size) + " bytes");
  base_ = own()->data();
  size_ = size;
  return {};
}

bool CaptureArea::Begin() {
  if (failure_.ok() && base_ == nullptr) {
    ReleaseHeld();  // of a capture that nobody has collected
    begun_ = step_begun_;
    ended_ = 0;
    failure_ = Acquire();
  }
  return failure_.ok();
}

bool CaptureArea::GetBuffer(Buffer* buffer) {
  *buffer = {base_, size_, with_sums_, timeout_ms_, InOwn() ? nullptr : engine_.lock()};
  if (InOwn() || buffer->engine != nullptr) return true;
  failure_ = Status(Code::kClosed, "the engine is closed");
  base_ = nullptr;
  return false;
}

Status CaptureArea::Copy(size_t group, const std::vector<Piece>& pieces, const std::vector<Source>& sources,
                         const Buffer& buffer) {
  for (const Piece& piece : pieces) {
    DF_RETURN_IF_ERROR(CheckSource(group, piece, sources));
    DF_RETURN_IF_ERROR(CheckPlace(group, piece, buffer.size));
  }
  const uint64_t begun_ns = env_->ThreadCpuNanos();
  Engine* const engine = buffer.engine.get();
  Status taken;
  uint64_t copied = 0;
  for (size_t i = 0; i < pieces.size() && taken.ok(); ++i) {
    copied += pieces[i].size;
    char* const to = buffer.base + pieces[i].place;
    const char* const from = sources[pieces[i].source].data + pieces[i].start;
    if (engine == nullptr) {
      CopyPastCache(to, from, pieces[i].size);
    } else {
      taken = CopyToEngine(engine, buffer.timeout_ms, buffer.with_sums, to, from, pieces[i].size);
    }
  }
  if (engine != nullptr) engine->CountCopy(copied, env_->ThreadCpuNanos() - begun_ns);
  if (!taken.ok()) Lose(std::move(taken));
  return {};
}

void CaptureArea::Lose(Status why) {
  const MutexLock lock(&mutex_);
  if (failure_.ok()) failure_ = std::move(why);
  base_ = nullptr;
}

Status CaptureArea::Capture(size_t group, const std::vector<Source>& sources) {
  Pieces pieces;
  Buffer buffer;
  {
    const uint64_t now = env_->NowMicros();
    const MutexLock lock(&mutex_);
    DF_RETURN_IF_ERROR(CheckGroup("capture", group));
    pieces = groups_[group].pieces;
    if (!Begin()) return {};
    groups_[group].at = now;
    ended_ = std::max(ended_, now);
    if (!GetBuffer(&buffer)) return {};
  }
  return Copy(group, *pieces, sources, buffer);
}

Status CaptureArea::CaptureTensors(size_t group, std::unique_ptr<Tensors> tensors) {
  {
    const uint64_t now = env_->NowMicros();
    const MutexLock lock(&mutex_);
    DF_RETURN_IF_ERROR(CheckGroup("capture", group));
    if (groups_[group].late) {
      if (!Begin()) return {};
      Group& of = groups_[group];
      of.at = now;
      ended_ = std::max(ended_, now);
      of.held_pieces = of.pieces;
      of.held.swap(tensors);  // those that were held before are released without the mutex
      return {};
    }
  }
  return Capture(group, tensors->sources());
}

Status CaptureArea::CaptureHeld(size_t group) {
  std::unique_ptr<Tensors> tensors;  // released without the mutex
  Pieces pieces;
  Buffer buffer;
  {
    const MutexLock lock(&mutex_);
    if (group >= groups_.size() || groups_[group].held == nullptr) return {};
    Group& of = groups_[group];
    tensors = std::move(of.held);
    pieces = std::move(of.held_pieces);
    if (base_ == nullptr) return {};
    of.apart = tensors->Apart() > kLittle;
    if (!GetBuffer(&buffer)) return {};
  }
  return Copy(group, *pieces, tensors->sources(), buffer);
}

Status CaptureArea::Collect(char** base, Owner* owner) {
  size_t groups = 0;
  {
    const MutexLock lock(&mutex_);
    groups = groups_.size();
  }
  Status copied;
  for (size_t group = 0; group < groups && copied.ok(); ++group) copied = CaptureHeld(group);
  const MutexLock lock(&mutex_);
  Status failure;
  std::swap(failure, failure_);
  DF_RETURN_IF_ERROR(failure);
  if (base_ == nullptr) return Status(Code::kInvalid, "collect: nothing was captured");
  *base = base_;
  *owner = InOwn() ? Owner::kArea : Owner::kEngine;
  base_ = nullptr;
  return copied;
}

void CaptureArea::DropOwn() {
  const MutexLock lock(&mutex_);
  if (InOwn()) {
    base_ = nullptr;
    ReleaseHeld();
  }
  SetOwn(nullptr);
}

void CaptureArea::SetOwn(std::shared_ptr<Pages> own) {
  const MutexLock lock(&own_mutex_);
  own_.swap(own);
}

}  // namespace deepfreeze
