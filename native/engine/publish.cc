#include "engine/publish.h"

#include "engine/patience.h"

namespace deepfreeze {

void Publisher::Run() {
  while (const JobRef job = context_.table->NextForPublish()) {
    Status status = Contained([&] { return job->partial->Sync(); });
    bool perhaps = false;
    if (status.ok()) context_.progress->Moved(job);
    if (status.ok()) status = PublishRecord(job, &perhaps);
    job->partial.reset();
    // If rank 0 can't publish its record, the step has failed. If another rank's publishing has returned an error and
    // rank 0 may see the record all the same, that rank does not know whether the step fails: it waits for rank 0's
    // verdict.
    if (status.ok() || (perhaps && context_.options.identity.rank != 0)) {
      context_.table->Published(job);
    } else if (status.code() == Code::kClosed) {
      return;
    } else {
      FailStep(context_, job, std::move(status));
    }
  }
}

Status Publisher::PublishRecord(const JobRef& job, bool* perhaps) {
  const Identity identity = context_.options.At(job->step);
  const auto publish = [&]() -> Status {
    Status status = context_.meeting->Sealed(Record{identity, job->extents, job->private_data, job->values}, perhaps);
    // A record that rank 0 may see is not written again: the step may be committed already, under another name.
    return *perhaps && identity.rank != 0 ? Status() : std::move(status);
  };
  Status status = Patiently(context_, job, publish);
  // Without room on the store, what failed steps have left there is removed first, and the record published again.
  if (status.code() == Code::kNoSpace && identity.rank == 0 && retention_->MakeRoom(job->step)) {
    status = Patiently(context_, job, publish);
  }
  return status;
}

}  // namespace deepfreeze
