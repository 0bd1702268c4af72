#include "capi/guard.h"

#include "capi/default_env.h"

namespace deepfreeze {
namespace {

thread_local std::string last_error;

}  // namespace

void SetError(const char* message) noexcept {
  try {
    last_error = message;
  } catch (...) {
    last_error.clear();  // there is no memory for the message, so the caller gets the code alone
  }
}

const char* LastError() noexcept { return last_error.c_str(); }

Status Invalid(const std::string& what) { return Status(Code::kInvalid, what); }

Status CheckEngine(const df_engine* engine, const char* call) {
  if (engine == nullptr) return Invalid(std::string(call) + ": a pointer is missing");
  return CheckProcess(DefaultEnv(), engine->process, call, "engine");
}

}  // namespace deepfreeze
