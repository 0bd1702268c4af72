// The testing library's Env: faults as the environment variables DEEPFREEZE_FAULT and DEEPFREEZE_FAULT_LOG say, and
// what is left of the calls recorded to the file that DEEPFREEZE_RECORD names. Where DEEPFREEZE_NETWORK names a
// directory, that one is on a network file system, and each call that asks for an Env gets a client of its own: so each
// engine is one. Recorded is then what reaches the server.
#include <cstdio>
#include <cstdlib>

#include "capi/default_env.h"
#include "testing/fault_env.h"
#include "testing/nfs_env.h"
#include "testing/record_env.h"

namespace deepfreeze {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

Env* MakeFaultEnv(Env* base) {
  std::vector<Fault> faults;
  const Status status = ParseFaults(Variable("DEEPFREEZE_FAULT"), &faults);
  if (!status.ok()) {  // a test with a wrong plan must not pass
    std::fprintf(stderr, "DEEPFREEZE_FAULT: %s\n", status.message().c_str());
    std::abort();
  }
  return new FaultEnv(base, faults, Variable("DEEPFREEZE_FAULT_LOG"));
}

Env* MakeRecordEnv(Env* base) {
  const std::string log = Variable("DEEPFREEZE_RECORD");
  return log.empty() ? base : new RecordEnv(base, log);
}

}  // namespace

Env* DefaultEnv() {
  static const std::string mounted = Variable("DEEPFREEZE_NETWORK");
  if (mounted.empty()) {
    static Env* env = MakeRecordEnv(MakeFaultEnv(Env::Posix()));
    return env;
  }
  static Env* server = MakeRecordEnv(Env::Posix());
  return MakeFaultEnv(new NfsEnv(server, mounted));  // never destroyed, as any Env that engines use
}

}  // namespace deepfreeze
