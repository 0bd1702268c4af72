// The faults of a plan that a test wrote.
#ifndef DEEPFREEZE_TESTING_FAULTS_OF_H_
#define DEEPFREEZE_TESTING_FAULTS_OF_H_

#include <string>
#include <vector>

#include "testing/check.h"
#include "testing/fault_env.h"

namespace deepfreeze {

// The faults of a plan. The test fails if the plan can't be read.
inline std::vector<Fault> FaultsOf(const std::string& plan) {
  std::vector<Fault> faults;
  CHECK_OK(ParseFaults(plan, &faults));
  return faults;
}

}  // namespace deepfreeze

#endif  // DEEPFREEZE_TESTING_FAULTS_OF_H_
