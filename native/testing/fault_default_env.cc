// The testing library's Env: faults as the environment variables DEEPFREEZE_FAULT and DEEPFREEZE_FAULT_LOG say, and
// what is left of the calls recorded to the file that DEEPFREEZE_RECORD names.
#include <cstdio>
#include <cstdlib>

#include "capi/default_env.h"
#include "testing/fault_env.h"
#include "testing/record_env.h"

namespace deepfreeze {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

Env* MakeEnv() {
  std::vector<Fault> faults;
  const Status status = ParseFaults(Variable("DEEPFREEZE_FAULT"), &faults);
  if (!status.ok()) {  // a test with a wrong plan must not pass
    std::fprintf(stderr, "DEEPFREEZE_FAULT: %s\n", status.message().c_str());
    std::abort();
  }
  Env* env = new FaultEnv(Env::Posix(), faults, Variable("DEEPFREEZE_FAULT_LOG"));
  const std::string log = Variable("DEEPFREEZE_RECORD");
  return log.empty() ? env : new RecordEnv(env, log);
}

}  // namespace

Env* DefaultEnv() {
  static Env* env = MakeEnv();
  return env;
}

}  // namespace deepfreeze
