// Jobs that a test takes through the table of jobs. For tests only.
#ifndef DEEPFREEZE_TESTING_TABLE_JOBS_H_
#define DEEPFREEZE_TESTING_TABLE_JOBS_H_

#include <memory>

#include "engine/job_table.h"
#include "testing/check.h"

namespace deepfreeze {

inline constexpr uint64_t kLong = 60000;
inline constexpr uint64_t kForEver = 100 * kLong;  // of a wait that something else must end

// A job without regions, which the table has accepted.
inline JobRef Submitted(JobTable* table, int64_t step, bool captured) {
  auto job = std::make_shared<Job>();
  job->step = step;
  CHECK_OK(table->Submit(job, captured, kLong));
  return job;
}

// Takes the job through the stages of the external level, from `stage` on.
inline void Commit(JobTable* table, const JobRef& job, size_t stage = kTransfer) {
  for (; stage <= kCommit; ++stage) {
    CHECK_EQ(table->Next(kExternal, stage), job);
    if (stage == kCommit) table->ReleaseSlots(job->step);
    table->Finish(job, kExternal);
  }
}

// The options of a table with so many slots, and room for two captures.
inline TableOptions WithSlots(uint32_t slots) { return TableOptions{2, slots, true}; }

}  // namespace deepfreeze

#endif  // DEEPFREEZE_TESTING_TABLE_JOBS_H_
