// The C interface of capture areas (area.h).
#include "deepfreeze/area.h"

#include <memory>
#include <vector>

#include "capi/default_env.h"
#include "capi/guard.h"
#include "graph/capture_area.h"
#include "graph/tensorflow_op.h"

namespace {

using deepfreeze::CheckEngine;
using deepfreeze::Guard;
using deepfreeze::Invalid;
using deepfreeze::Status;

// Calls `work` with the area of this number.
template <typename Work>
Status WithArea(const char* call, uint64_t number, Work work) {
  std::shared_ptr<deepfreeze::CaptureArea> area;
  DF_RETURN_IF_ERROR(deepfreeze::CaptureArea::Find(call, number, &area));
  return area == nullptr ? Invalid("no capture area " + std::to_string(number)) : work(area.get());
}

}  // namespace

extern "C" {

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
      auto owner = deepfreeze::CaptureArea::Owner::kEngine;
      DF_RETURN_IF_ERROR(found->Collect(&at, &owner));
      *base = at;
      *own = owner == deepfreeze::CaptureArea::Owner::kArea ? 1 : 0;
      return Status();
    });
  });
}

int df_area_late(uint64_t area, uint64_t group, int32_t late) {
  return Guard([&]() -> Status {
    return WithArea("late", area, [&](deepfreeze::CaptureArea* found) { return found->SetLate(group, late != 0); });
  });
}

int df_area_held(uint64_t area, uint64_t* groups) {
  return Guard([&]() -> Status {
    if (groups == nullptr) return Invalid("held: a pointer is missing");
    return WithArea("held", area, [&](deepfreeze::CaptureArea* found) {
      *groups = found->Held();
      return Status();
    });
  });
}

int df_area_note(uint64_t area, uint64_t group, double* updated, int32_t* apart) {
  return Guard([&]() -> Status {
    if (updated == nullptr || apart == nullptr) return Invalid("note: a pointer is missing");
    return WithArea("note", area, [&](deepfreeze::CaptureArea* found) {
      deepfreeze::CaptureArea::Note note;
      DF_RETURN_IF_ERROR(found->GetNote(group, &note));
      *updated = note.updated;
      *apart = note.apart ? 1 : 0;
      return Status();
    });
  });
}

int df_area_marks(uint64_t area, uint64_t n) {
  return Guard([&]() -> Status {
    return WithArea("marks", area, [&](deepfreeze::CaptureArea* found) { return found->marks()->Set(n); });
  });
}

int df_area_mark(uint64_t area, uint64_t number) {
  return Guard([&]() -> Status {
    return WithArea("mark", area, [&](deepfreeze::CaptureArea* found) {
      found->marks()->Note(number);
      return Status();
    });
  });
}

int df_area_marked(uint64_t area, df_mark* marks, size_t n) {
  return Guard([&]() -> Status {
    if (marks == nullptr && n > 0) return Invalid("marked: a pointer is missing");
    return WithArea("marked", area, [&](deepfreeze::CaptureArea* found) {
      const std::vector<deepfreeze::StepMarks::Mark> noted = found->marks()->Take();
      if (noted.size() != n) return Invalid("marked: the area has " + std::to_string(noted.size()) + " marks");
      for (size_t i = 0; i < n; ++i) {
        marks[i] = {noted[i].at_us,       noted[i].cpu_us,      noted[i].external_bytes,
                    noted[i].local_bytes, noted[i].external_us, noted[i].local_us};
      }
      return Status();
    });
  });
}

int df_area_discard(uint64_t area) {
  return Guard([&]() -> Status {
    return WithArea("discard", area, [](deepfreeze::CaptureArea* found) {
      found->Discard();
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

}  // extern "C"
