// The C interface: checks arguments, turns Status into codes and messages, and lets no exception out.
#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>

#include "base/crc32c.h"
#include "capi/default_env.h"
#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "engine/rescue.h"
#include "graph/capture_area.h"
#include "graph/tensorflow_op.h"
#include "local/slot_store.h"
#include "store/commit.h"
#include "store/records.h"

struct df_engine {
  std::shared_ptr<deepfreeze::Engine> engine;  // areas hold weak pointers to it
  int64_t process = 0;                         // the process that opened the engine
};

namespace {

using deepfreeze::Code;
using deepfreeze::Status;

static_assert(static_cast<int>(Code::kOk) == DF_OK && static_cast<int>(Code::kInvalid) == DF_INVALID &&
              static_cast<int>(Code::kIo) == DF_IO && static_cast<int>(Code::kNoSpace) == DF_NO_SPACE &&
              static_cast<int>(Code::kTimeout) == DF_TIMEOUT && static_cast<int>(Code::kCorrupt) == DF_CORRUPT &&
              static_cast<int>(Code::kIncomplete) == DF_INCOMPLETE && static_cast<int>(Code::kClosed) == DF_CLOSED &&
              static_cast<int>(Code::kDiverged) == DF_DIVERGED && static_cast<int>(Code::kTaken) == DF_TAKEN);

// How long closing waits for calls of the system that are under way. On a store that works no chunk takes longer.
constexpr uint64_t kClosePatienceMs = 30000;

thread_local std::string last_error;

void SetError(const char* message) noexcept {
  try {
    last_error = message;
  } catch (...) {
    last_error.clear();  // there is no memory for the message, so the caller gets the code alone
  }
}

// Runs the body of a call, which returns a Status. Turns the Status, or an exception, into a code and the last message.
template <typename Body>
int Guard(Body body) noexcept {
  try {
    const Status status = body();
    SetError(status.message().c_str());
    return static_cast<int>(status.code());
  } catch (const std::exception& error) {
    SetError(error.what());
  } catch (...) {
    SetError("unknown failure");
  }
  return DF_IO;
}

Status Invalid(const std::string& what) { return Status(Code::kInvalid, what); }

bool Forked(const df_engine* engine) { return engine->process != deepfreeze::DefaultEnv()->ProcessId(); }

// Refuses a null pointer, and a forked child's copy of an engine: the copy has no threads, and its mutex may have been
// held at the fork.
Status CheckEngine(const df_engine* engine, const char* call) {
  if (engine == nullptr) return Invalid(std::string(call) + ": a pointer is missing");
  return deepfreeze::CheckProcess(deepfreeze::DefaultEnv(), engine->process, call, "engine");
}

Status CheckOptions(const df_options* o) {
  if (o == nullptr) return Invalid("options: a pointer is missing");
  if (o->struct_size != sizeof(df_options)) {
    return Status::FourPart(Code::kInvalid, "options.struct_size", std::to_string(sizeof(df_options)),
                            std::to_string(o->struct_size), "Use bindings of the same version as the library");
  }
  if (o->world < 1 || o->rank >= o->world) {
    return Invalid("options: rank " + std::to_string(o->rank) + " is not below world " + std::to_string(o->world));
  }
  if (o->in_flight < 1) return Invalid("options: in_flight must be 1 or more");
  if (o->slots < 1) return Invalid("options: slots must be 1 or more");
  if (o->writers < 1) return Invalid("options: writers must be 1 or more");
  if (o->refuse_diverged > DF_REFUSE_FIRST) return Invalid("options: refuse_diverged must be one of df_refusal");
  if (o->nice > 19) return Invalid("options: nice must be 0 to 19");
  if (o->chunk_bytes < 4096 || o->chunk_bytes % 4096 != 0) {
    return Invalid("options: chunk_bytes must be a multiple of 4096, not " + std::to_string(o->chunk_bytes));
  }
  if (o->file_size == 0 || o->file_size > deepfreeze::kMaxFileSize) {
    return Status::FourPart(Code::kInvalid, "options.file_size",
                            "1 to " + std::to_string(deepfreeze::kMaxFileSize) + " bytes", std::to_string(o->file_size),
                            "Correct file_size");
  }
  if (o->run_dir == nullptr || *o->run_dir == '\0') return Invalid("options: run_dir is missing");
  if (o->local_dir != nullptr && *o->local_dir == '\0') return Invalid("options: local_dir is empty");
  for (const char* directory : {o->run_dir, o->local_dir}) {
    deepfreeze::FileInfo info;
    if (directory == nullptr) continue;
    // With the slash at the end, Stat follows a symbolic link to a directory.
    DF_RETURN_IF_ERROR(deepfreeze::DefaultEnv()->Stat(std::string(directory) + "/", &info));
    if (!info.is_directory) {
      return Status::FourPart(Code::kInvalid, directory, "an existing directory",
                              info.exists ? "something else" : "nothing", "Make the directory");
    }
  }
  return {};
}

deepfreeze::Options ToOptions(const df_options& o) {
  deepfreeze::Options options;
  std::memcpy(options.identity.run_id.data(), o.run_id, 16);
  std::memcpy(options.identity.attempt.data(), o.attempt, 16);
  std::memcpy(options.identity.structure.data(), o.structure, 32);
  options.identity.rank = o.rank;
  options.identity.world = o.world;
  options.identity.file_size = o.file_size;
  options.identity.hashes = o.hashes;
  options.refuse_diverged = static_cast<deepfreeze::Refuse>(o.refuse_diverged);
  options.in_flight = o.in_flight;
  options.slots = o.slots;
  options.writers = o.writers;
  options.nice = static_cast<int>(o.nice);
  options.chunk_bytes = o.chunk_bytes;
  options.commit_timeout_ms = o.commit_timeout_ms;
  options.run_dir = o.run_dir;
  options.local_dir = o.local_dir != nullptr ? o.local_dir : "";
  return options;
}

std::vector<deepfreeze::Region> ToRegions(const df_region* regions, size_t n) {
  std::vector<deepfreeze::Region> copy(n);
  for (size_t i = 0; i < n; ++i) {
    copy[i] = {static_cast<const char*>(regions[i].data), regions[i].nbytes, regions[i].file_offset};
  }
  return copy;
}

// Calls `work` with the area of this number.
template <typename Work>
Status WithArea(const char* call, uint64_t number, Work work) {
  std::shared_ptr<deepfreeze::CaptureArea> area;
  DF_RETURN_IF_ERROR(deepfreeze::CaptureArea::Find(call, number, &area));
  return area == nullptr ? Invalid("no capture area " + std::to_string(number)) : work(area.get());
}

df_report ToReport(const deepfreeze::Report& from) {
  df_report report = {};
  report.step = from.step;
  report.level = from.level;
  report.code = static_cast<int32_t>(from.code);
  report.released = from.released ? 1 : 0;
  report.diverged = from.diverged;
  report.nbytes = from.nbytes;
  report.local_s = from.local_s;
  report.written_s = from.written_s;
  report.external_s = from.external_s;
  from.message.copy(report.message, sizeof(report.message) - 1);
  return report;
}

}  // namespace

extern "C" {

const char* df_version(void) { return DF_VERSION; }

uint32_t df_abi_version(void) { return DF_ABI_VERSION; }

const char* df_error(void) { return last_error.c_str(); }

uint32_t df_crc32c(uint32_t crc, const void* data, size_t n) { return deepfreeze::Crc32c(crc, data, n); }

int df_engine_open(const df_options* options, df_engine** out) {
  return Guard([&]() -> Status {
    if (out == nullptr) return Invalid("out: a pointer is missing");
    *out = nullptr;
    DF_RETURN_IF_ERROR(CheckOptions(options));
    auto engine = std::make_unique<df_engine>();
    engine->engine = std::make_shared<deepfreeze::Engine>(ToOptions(*options), deepfreeze::DefaultEnv());
    engine->process = deepfreeze::DefaultEnv()->ProcessId();
    *out = engine.release();
    return {};
  });
}

int df_engine_submit(df_engine* engine, int64_t step, const df_region* regions, size_t n, const void* private_data,
                     uint64_t private_bytes, const void* values, uint64_t values_bytes, uint64_t timeout_ms) {
  return Guard([&]() -> Status {
    DF_RETURN_IF_ERROR(CheckEngine(engine, "submit"));
    if ((regions == nullptr && n > 0) || (private_data == nullptr && private_bytes > 0) ||
        (values == nullptr && values_bytes > 0)) {
      return Invalid("submit: a pointer is missing");
    }
    std::string private_copy;
    if (private_bytes > 0) private_copy.assign(static_cast<const char*>(private_data), private_bytes);
    std::string values_copy;
    if (values_bytes > 0) values_copy.assign(static_cast<const char*>(values), values_bytes);
    std::vector<deepfreeze::Region> copy = ToRegions(regions, n);
    std::vector<std::shared_ptr<deepfreeze::Pages>> memory = deepfreeze::CaptureArea::MemoryOf(copy);
    return engine->engine->Submit(step, std::move(copy), std::move(private_copy), timeout_ms, std::move(memory),
                                  std::move(values_copy));
  });
}

int df_engine_fail(df_engine* engine, int64_t step, const char* message) {
  return Guard([&]() -> Status {
    DF_RETURN_IF_ERROR(CheckEngine(engine, "fail"));
    if (message == nullptr) return Invalid("fail: a pointer is missing");
    return engine->engine->Fail(step, message);
  });
}

int df_engine_wait(df_engine* engine, int64_t step, int level, uint64_t timeout_ms) {
  return Guard([&]() -> Status {
    DF_RETURN_IF_ERROR(CheckEngine(engine, "wait"));
    if (level < DF_CAPTURED || level > DF_EXTERNAL) return Invalid("wait: no level " + std::to_string(level));
    return engine->engine->Wait(step, level, timeout_ms);
  });
}

int df_engine_poll(df_engine* engine, df_report* out, size_t capacity, size_t* n) {
  return Guard([&]() -> Status {
    if (n != nullptr) *n = 0;
    DF_RETURN_IF_ERROR(CheckEngine(engine, "poll"));
    if (n == nullptr || (out == nullptr && capacity > 0)) {
      return Invalid("poll: a pointer is missing");
    }
    if (out == nullptr) return {};
    for (const deepfreeze::Report& report : engine->engine->Poll(capacity)) out[(*n)++] = ToReport(report);
    return {};
  });
}

int df_engine_remove(df_engine* engine, const int64_t* steps, size_t n) {
  return Guard([&]() -> Status {
    DF_RETURN_IF_ERROR(CheckEngine(engine, "remove"));
    if (steps == nullptr && n > 0) return Invalid("remove: a pointer is missing");
    return n == 0 ? Status() : engine->engine->Remove(std::vector<int64_t>(steps, steps + n));
  });
}

int df_engine_drain(df_engine* engine, uint64_t timeout_ms) {
  return Guard([&]() -> Status {
    DF_RETURN_IF_ERROR(CheckEngine(engine, "drain"));
    return engine->engine->Drain(timeout_ms);
  });
}

int df_engine_close(df_engine* engine) {
  return Guard([&]() -> Status {
    if (engine == nullptr || Forked(engine)) return {};  // a forked child's copy is freed when the child ends
    std::string where;
    const uint64_t patience_ms = std::min(engine->engine->options().commit_timeout_ms, kClosePatienceMs);
    if (!engine->engine->Stop(patience_ms, &where)) {
      // The engine's threads still use the object, so it stays until the process ends.
      return Status::FourPart(
          Code::kTimeout, "close", "the engine's threads to end",
          where + " in a call to the system that did not return for " + std::to_string(patience_ms) + " ms",
          "The store hangs; what was in flight may be lost. The threads are left behind, and what "
          "they read must stay in memory");
    }
    delete engine;
    return {};
  });
}

int df_engine_plan(df_engine* engine, const df_region* regions, size_t n, uint64_t private_bytes, uint64_t side_bytes,
                   uint64_t* places) {
  return Guard([&]() -> Status {
    DF_RETURN_IF_ERROR(CheckEngine(engine, "plan"));
    if ((regions == nullptr && n > 0) || places == nullptr) return Invalid("plan: a pointer is missing");
    deepfreeze::CapturePlan plan;
    DF_RETURN_IF_ERROR(engine->engine->Plan(ToRegions(regions, n), private_bytes, side_bytes, &plan));
    std::copy(plan.places.begin(), plan.places.end(), places);
    places[n] = plan.side;
    return {};
  });
}

int df_engine_idle(df_engine* engine, uint64_t* ms) {
  return Guard([&]() -> Status {
    DF_RETURN_IF_ERROR(CheckEngine(engine, "idle"));
    if (ms == nullptr) return Invalid("idle: a pointer is missing");
    *ms = engine->engine->IdleMs();
    return {};
  });
}

int df_engine_reserve(df_engine* engine, uint64_t timeout_ms) {
  return Guard([&]() -> Status {
    DF_RETURN_IF_ERROR(CheckEngine(engine, "reserve"));
    char* base = nullptr;
    return engine->engine->Reserve(timeout_ms, &base);
  });
}

int df_engine_room(df_engine* engine, uint32_t* n) {
  return Guard([&]() -> Status {
    DF_RETURN_IF_ERROR(CheckEngine(engine, "room"));
    if (n == nullptr) return Invalid("room: a pointer is missing");
    *n = engine->engine->Room();
    return {};
  });
}

int df_area_open(uint64_t* area) {
  return Guard([&]() -> Status {
    if (area == nullptr) return Invalid("area: a pointer is missing");
    *area = deepfreeze::CaptureArea::Register(std::make_shared<deepfreeze::CaptureArea>(deepfreeze::DefaultEnv()));
    return {};
  });
}

int df_area_group(uint64_t area, uint64_t group, const df_piece* pieces, size_t n) {
  return Guard([&]() -> Status {
    if (pieces == nullptr && n > 0) return Invalid("group: a pointer is missing");
    return WithArea("group", area, [&](deepfreeze::CaptureArea* found) {
      std::vector<deepfreeze::CaptureArea::Piece> copy(n);
      for (size_t i = 0; i < n; ++i) copy[i] = {pieces[i].source, pieces[i].start, pieces[i].nbytes, pieces[i].place};
      return found->SetGroup(group, std::move(copy));
    });
  });
}

int df_area_attach(uint64_t area, df_engine* engine, uint64_t timeout_ms) {
  return Guard([&]() -> Status {
    if (engine != nullptr) DF_RETURN_IF_ERROR(CheckEngine(engine, "attach"));
    return WithArea("attach", area, [&](deepfreeze::CaptureArea* found) {
      found->Attach(engine == nullptr ? nullptr : engine->engine, timeout_ms);
      return Status();
    });
  });
}

int df_area_capture(uint64_t area, uint64_t group, const void* const* data, const uint64_t* nbytes, size_t n) {
  return Guard([&]() -> Status {
    if ((data == nullptr || nbytes == nullptr) && n > 0) return Invalid("capture: a pointer is missing");
    return WithArea("capture", area, [&](deepfreeze::CaptureArea* found) {
      std::vector<deepfreeze::CaptureArea::Source> sources(n);
      for (size_t i = 0; i < n; ++i) sources[i] = {static_cast<const char*>(data[i]), nbytes[i]};
      return found->Capture(group, sources);
    });
  });
}

int df_area_collect(uint64_t area, void** base, int32_t* own) {
  return Guard([&]() -> Status {
    if (base == nullptr || own == nullptr) return Invalid("collect: a pointer is missing");
    return WithArea("collect", area, [&](deepfreeze::CaptureArea* found) {
      char* at = nullptr;
      bool is_own = false;
      DF_RETURN_IF_ERROR(found->Collect(&at, &is_own));
      *base = at;
      *own = is_own ? 1 : 0;
      return Status();
    });
  });
}

int df_area_drop(uint64_t area) {
  return Guard([&]() -> Status {
    return WithArea("drop", area, [](deepfreeze::CaptureArea* found) {
      found->DropOwn();
      return Status();
    });
  });
}

int df_area_close(uint64_t area) {
  return Guard([&]() -> Status {
    deepfreeze::CaptureArea::Forget(area);
    return {};
  });
}

int df_tensorflow_register(void) {
  return Guard([]() -> Status { return deepfreeze::RegisterTensorflowOp(); });
}

int df_slot_inspect(const char* path, df_slot_info* out) {
  return Guard([&]() -> Status {
    if (path == nullptr || out == nullptr) return Invalid("slot_inspect: a pointer is missing");
    deepfreeze::WholeSlot slot;
    DF_RETURN_IF_ERROR(deepfreeze::OpenSlot(deepfreeze::DefaultEnv(), path, &slot));
    const deepfreeze::Identity& id = slot.header.identity;
    *out = df_slot_info();
    out->step = id.step;
    out->rank = id.rank;
    out->world = id.world;
    out->file_size = id.file_size;
    out->nbytes = deepfreeze::TotalBytes(slot.extents);
    std::memcpy(out->run_id, id.run_id.data(), 16);
    std::memcpy(out->attempt, id.attempt.data(), 16);
    std::memcpy(out->structure, id.structure.data(), 32);
    return {};
  });
}

int df_slot_transfer(const char* path, const char* run_dir) {
  return Guard([&]() -> Status {
    if (path == nullptr || run_dir == nullptr) return Invalid("slot_transfer: a pointer is missing");
    return deepfreeze::RescueSlot(deepfreeze::DefaultEnv(), path, run_dir);
  });
}

int df_commit(const char* run_dir, int64_t step, const uint8_t attempt[16]) {
  return Guard([&]() -> Status {
    if (run_dir == nullptr || attempt == nullptr) return Invalid("commit: a pointer is missing");
    deepfreeze::CommitRequest request;
    request.run_dir = run_dir;
    request.step = step;
    std::memcpy(request.attempt.data(), attempt, 16);
    // The attempt died, perhaps with its node. So its files are read and their checksums compared before the commit.
    request.verify = true;
    // The dead job may have refused this step because its ranks differed. A training that went on from it would go on
    // from a mixture of models.
    request.refuse_diverged = true;
    deepfreeze::Env* env = deepfreeze::DefaultEnv();
    deepfreeze::Divergence known;
    DF_RETURN_IF_ERROR(deepfreeze::KnownBefore(env, request.run_dir, step, request.attempt, &known));
    request.known = &known;
    deepfreeze::CommitOutcome outcome;
    DF_RETURN_IF_ERROR(deepfreeze::Commit(env, request, &outcome));
    // Not before the commit is durable: a loss of power could bring the partial directory back, and without its records
    // it could not be finished. Nor if the step was committed before: an older version may have written it, whose
    // committed checkpoints consist of these very files.
    if (outcome.gathered && outcome.unsynced.ok()) deepfreeze::RemoveRecords(env, request.run_dir, step);
    return outcome.unsynced;  // an error ends this start of a job; the next start finds the step committed
  });
}

}  // extern "C"
