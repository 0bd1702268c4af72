// The frame of all functions of the C interface: a Status becomes a code and a message, and no exception gets out.
#ifndef DEEPFREEZE_CAPI_GUARD_H_
#define DEEPFREEZE_CAPI_GUARD_H_

#include <exception>
#include <memory>
#include <string>

#include "base/status.h"
#include "engine/engine.h"

struct df_engine {
  std::shared_ptr<deepfreeze::Engine> engine;  // areas hold weak pointers to it
  int64_t process = 0;                         // the process that opened the engine
};

namespace deepfreeze {

// Sets the calling thread's message, which df_error returns.
void SetError(const char* message) noexcept;
const char* LastError() noexcept;

// Runs the body of a call, which returns a Status. RETURNS its code; its message, or an exception's, is set.
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
  return static_cast<int>(Code::kIo);
}

Status Invalid(const std::string& what);

// Refuses a null pointer, and a forked child's copy of an engine: the copy has no threads, and its mutex may have been
// held at the fork. `call` names the caller in the message.
Status CheckEngine(const df_engine* engine, const char* call);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_CAPI_GUARD_H_
