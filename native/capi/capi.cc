// The C interface of the engine (deepfreeze.h): checks arguments and calls the engine.
#include <algorithm>
#include <cstring>
#include <memory>

#include "base/crc32c.h"
#include "capi/caller_options.h"
#include "capi/default_env.h"
#include "capi/guard.h"
#include "capi/stats.h"
#include "deepfreeze/deepfreeze.h"
#include "engine/engine.h"
#include "engine/rescue.h"
#include "engine/stage.h"
#include "graph/capture_area.h"
#include "local/slot_store.h"
#include "store/posix_store.h"
#include "store/probe.h"

namespace {

using deepfreeze::CheckEngine;
using deepfreeze::Code;
using deepfreeze::Guard;
using deepfreeze::Invalid;
using deepfreeze::Status;

static_assert(static_cast<int>(Code::kOk) == DF_OK && static_cast<int>(Code::kInvalid) == DF_INVALID &&
              static_cast<int>(Code::kIo) == DF_IO && static_cast<int>(Code::kNoSpace) == DF_NO_SPACE &&
              static_cast<int>(Code::kTimeout) == DF_TIMEOUT && static_cast<int>(Code::kCorrupt) == DF_CORRUPT &&
              static_cast<int>(Code::kIncomplete) == DF_INCOMPLETE && static_cast<int>(Code::kClosed) == DF_CLOSED &&
              static_cast<int>(Code::kDiverged) == DF_DIVERGED && static_cast<int>(Code::kTaken) == DF_TAKEN &&
              static_cast<int>(Code::kSuperseded) == DF_SUPERSEDED);

// How long closing waits for calls of the system that are under way. On a store that works no chunk takes longer.
constexpr uint64_t kClosePatienceMs = 30000;

bool Forked(const df_engine* engine) { return engine->process != deepfreeze::DefaultEnv()->ProcessId(); }

std::vector<deepfreeze::Region> ToRegions(const df_region* regions, size_t n) {
  std::vector<deepfreeze::Region> copy(n);
  for (size_t i = 0; i < n; ++i) {
    copy[i] = {static_cast<const char*>(regions[i].data), regions[i].nbytes, regions[i].file_offset};
  }
  return copy;
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
  report.copy_s = from.copy_s;
  report.cpu_s = from.cpu_s;
  report.superseded_by = from.superseded_by;
  return report;
}

df_progress ToProgress(const deepfreeze::UnderWay& from) {
  df_progress progress = {};
  progress.step = from.step;
  progress.level = from.level;
  progress.published = from.published ? 1 : 0;
  progress.nbytes = from.nbytes;
  progress.local_bytes = from.local_bytes;
  progress.external_bytes = from.external_bytes;
  progress.age_s = from.age_s;
  from.waits_for.copy(progress.waits_for, sizeof(progress.waits_for) - 1);
  return progress;
}

}  // namespace

extern "C" {

const char* df_version(void) { return DF_VERSION; }

uint32_t df_abi_version(void) { return DF_ABI_VERSION; }

const char* df_error(void) { return deepfreeze::LastError(); }

uint32_t df_crc32c(uint32_t crc, const void* data, size_t n) { return deepfreeze::Crc32c(crc, data, n); }

int df_engine_open(const df_options* options, df_engine** out) {
  return Guard([&]() -> Status {
    if (out == nullptr) return Invalid("out: a pointer is missing");
    *out = nullptr;
    deepfreeze::Options read;
    DF_RETURN_IF_ERROR(deepfreeze::ReadOptions(options, deepfreeze::DefaultEnv(), &read));
    auto engine = std::make_unique<df_engine>();
    engine->engine = std::make_shared<deepfreeze::Engine>(read, deepfreeze::DefaultEnv());
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
    std::vector<const deepfreeze::Pages*> left;
    for (const std::shared_ptr<deepfreeze::Pages>& pages : memory) left.push_back(pages.get());
    DF_RETURN_IF_ERROR(engine->engine->Submit(step, std::move(copy), std::move(private_copy), timeout_ms,
                                              std::move(memory), std::move(values_copy)));
    deepfreeze::BestEffort([&] { deepfreeze::CaptureArea::Leave(left); });  // the step is taken in any case
    return {};
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

int df_engine_progress(df_engine* engine, df_progress* out, size_t capacity, size_t* n) {
  return Guard([&]() -> Status {
    if (n != nullptr) *n = 0;
    DF_RETURN_IF_ERROR(CheckEngine(engine, "progress"));
    if (n == nullptr || (out == nullptr && capacity > 0)) return Invalid("progress: a pointer is missing");
    if (out == nullptr) return {};
    for (const deepfreeze::UnderWay& one : engine->engine->Unfinished(capacity)) out[(*n)++] = ToProgress(one);
    return {};
  });
}

int df_engine_remove(df_engine* engine, const int64_t* steps, size_t n) {
  return Guard([&]() -> Status {
    DF_RETURN_IF_ERROR(CheckEngine(engine, "remove"));
    if (steps == nullptr && n > 0) return Invalid("remove: a pointer is missing");
    std::vector<int64_t> chosen;
    if (n > 0) chosen.assign(steps, steps + n);
    return engine->engine->Remove(chosen);
  });
}

int df_engine_supersede(df_engine* engine, int64_t step, int64_t by) {
  return Guard([&]() -> Status {
    DF_RETURN_IF_ERROR(CheckEngine(engine, "supersede"));
    return engine->engine->Supersede(step, by);
  });
}

int df_engine_replace(df_engine* engine, int64_t step, int64_t by) {
  return Guard([&]() -> Status {
    DF_RETURN_IF_ERROR(CheckEngine(engine, "replace"));
    return engine->engine->Replace(step, by);
  });
}

int df_engine_hold(df_engine* engine, int64_t step, int32_t* held) {
  return Guard([&]() -> Status {
    DF_RETURN_IF_ERROR(CheckEngine(engine, "hold"));
    if (held == nullptr) return Invalid("hold: a pointer is missing");
    *held = engine->engine->Hold(step) ? 1 : 0;
    return {};
  });
}

int df_engine_tune(df_engine* engine, uint64_t writers, uint64_t transfers, uint64_t uncommitted) {
  return Guard([&]() -> Status {
    DF_RETURN_IF_ERROR(CheckEngine(engine, "tune"));
    return engine->engine->Tune({writers, transfers, uncommitted});
  });
}

int df_engine_drain(df_engine* engine, uint64_t timeout_ms) {
  return Guard([&]() -> Status {
    DF_RETURN_IF_ERROR(CheckEngine(engine, "drain"));
    return engine->engine->Drain(timeout_ms);
  });
}

int df_engine_stats(df_engine* engine, df_stats* out) {
  return Guard([&]() -> Status {
    DF_RETURN_IF_ERROR(CheckEngine(engine, "stats"));
    if (out == nullptr) return Invalid("stats: a pointer is missing");
    const uint32_t size = out->struct_size;
    if (size < 2 * sizeof(uint32_t)) return Invalid("stats: struct_size must be sizeof(df_stats)");
    df_stats stats = deepfreeze::ToStats(engine->engine->counters());
    stats.struct_size = size;
    std::memset(out, 0, size);
    std::memcpy(out, &stats, std::min<size_t>(size, sizeof(stats)));
    return {};
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

int df_capture_size(const df_region* regions, size_t n, uint64_t private_bytes, uint64_t side_bytes,
                    uint64_t chunk_bytes, uint64_t* nbytes) {
  return Guard([&]() -> Status {
    if ((regions == nullptr && n > 0) || nbytes == nullptr) return Invalid("capture_size: a pointer is missing");
    if (chunk_bytes == 0) return Invalid("capture_size: chunk_bytes must be 1 or more");
    deepfreeze::CapturePlan plan;
    DF_RETURN_IF_ERROR(deepfreeze::LayOutCapture(ToRegions(regions, n), private_bytes, side_bytes, chunk_bytes, &plan));
    *nbytes = plan.size;
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
    deepfreeze::PosixStore store(deepfreeze::DefaultEnv(), run_dir);
    return deepfreeze::RescueSlot(deepfreeze::DefaultEnv(), path, &store);
  });
}

int df_commit(const char* run_dir, int64_t step, const uint8_t attempt[16]) {
  return Guard([&]() -> Status {
    if (run_dir == nullptr || attempt == nullptr) return Invalid("commit: a pointer is missing");
    deepfreeze::Id id{};
    std::memcpy(id.data(), attempt, id.size());
    return deepfreeze::PosixStore(deepfreeze::DefaultEnv(), run_dir).Finish(step, id);
  });
}

int df_probe(const char* run_dir, uint32_t writers, uint64_t bytes, uint64_t chunk_bytes, uint64_t budget_ms,
             double* direct, double* cached) {
  return Guard([&]() -> Status {
    if (run_dir == nullptr || direct == nullptr || cached == nullptr) return Invalid("probe: a pointer is missing");
    if (writers < 1 || chunk_bytes < deepfreeze::kDirectUnit || chunk_bytes % deepfreeze::kDirectUnit != 0 ||
        bytes / 6 < chunk_bytes) {
      return Invalid("probe: writers must be 1 or more, chunk_bytes a multiple of 4096, bytes six times as many");
    }
    deepfreeze::Env* env = deepfreeze::DefaultEnv();
    deepfreeze::Rates rates;
    if (!env->InMemory(run_dir)) {
      DF_RETURN_IF_ERROR(deepfreeze::ProbeStore(env, run_dir, writers, bytes, chunk_bytes, budget_ms, &rates));
    }
    *direct = rates.direct;
    *cached = rates.cached;
    return {};
  });
}

int df_newest(const char* run_dir, int64_t* step) {
  return Guard([&]() -> Status {
    if (run_dir == nullptr || step == nullptr) return Invalid("newest: a pointer is missing");
    deepfreeze::Manifest manifest;
    bool found = false;
    DF_RETURN_IF_ERROR(deepfreeze::PosixStore(deepfreeze::DefaultEnv(), run_dir).Newest(&manifest, &found));
    *step = found ? manifest.identity.step : -1;
    return {};
  });
}

}  // extern "C"
