// The testing library's Env: faults as the environment variables DEEPFREEZE_FAULT and DEEPFREEZE_FAULT_LOG say, and
// what is left of the calls recorded to the file that DEEPFREEZE_RECORD names. Where DEEPFREEZE_NETWORK names a
// directory, that one is on a network file system, and each call that asks for an Env gets a client of its own: so each
// engine is one. Recorded is then what reaches the server.
//
// DEEPFREEZE_JITTER is the most milliseconds by which calls come late at random, whatever the plan (`pytest --jitter`).
//
// df_testing_faults replaces the plan while the process runs, for the engines that are opened from then on.
#include <cstdio>
#include <cstdlib>
#include <mutex>

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

// The faults of a plan, and behind them the jitter that DEEPFREEZE_JITTER asks for.
Status ParsePlan(const std::string& plan, std::vector<Fault>* faults) {
  const std::string most_ms = Variable("DEEPFREEZE_JITTER");
  DF_RETURN_IF_ERROR(ParseFaults(plan, faults));
  return most_ms.empty() ? Status() : ParseFaults("jitter=" + most_ms + ":*::1+", faults);
}

Env* MakeFaultEnv(Env* base) {
  std::vector<Fault> faults;
  const Status status = ParsePlan(Variable("DEEPFREEZE_FAULT"), &faults);
  if (!status.ok()) {  // a test with a wrong plan must not pass
    std::fprintf(stderr, "DEEPFREEZE_FAULT, DEEPFREEZE_JITTER: %s\n", status.message().c_str());
    std::abort();
  }
  return new FaultEnv(base, faults, Variable("DEEPFREEZE_FAULT_LOG"));
}

Env* MakeRecordEnv(Env* base) {
  const std::string log = Variable("DEEPFREEZE_RECORD");
  return log.empty() ? base : new RecordEnv(base, log);
}

std::mutex chosen_mutex;
Env* chosen =
    nullptr;  // what the last call of df_testing_faults asked for; never destroyed, as any Env that engines use

}  // namespace

Env* DefaultEnv() {
  static const std::string mounted = Variable("DEEPFREEZE_NETWORK");
  if (mounted.empty()) {
    {
      std::lock_guard<std::mutex> lock(chosen_mutex);
      if (chosen != nullptr) return chosen;
    }
    static Env* env = MakeRecordEnv(MakeFaultEnv(Env::Posix()));
    return env;
  }
  static Env* server = MakeRecordEnv(Env::Posix());
  return MakeFaultEnv(new NfsEnv(server, mounted));  // never destroyed, as any Env that engines use
}

}  // namespace deepfreeze

// Exported by the testing library alone. Engines keep the Env that they were opened with. Returns 0, or -1 for a plan
// that can't be read, and where DEEPFREEZE_RECORD or DEEPFREEZE_NETWORK fixed the Env for good.
extern "C" __attribute__((visibility("default"))) int df_testing_faults(const char* plan, const char* log) {
  using namespace deepfreeze;
  std::vector<Fault> faults;
  if (!Variable("DEEPFREEZE_RECORD").empty() || !Variable("DEEPFREEZE_NETWORK").empty()) return -1;
  if (!ParsePlan(plan, &faults).ok()) return -1;
  Env* env = new FaultEnv(Env::Posix(), faults, log);
  std::lock_guard<std::mutex> lock(chosen_mutex);
  chosen = env;
  return 0;
}
