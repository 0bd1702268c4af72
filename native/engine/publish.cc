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
    // What rank 0 can't do has failed. Another rank whose record rank 0 may see can't say so: it learns the verdict.
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
    Status status = job->partial->Publish(Record{identity, job->extents, job->private_data}, perhaps);
    // A record that rank 0 may see is not written anew: the step may be committed, and its directory have another name.
    return *perhaps && identity.rank != 0 ? Status() : std::move(status);
  };
  Status status = Patiently(context_, job, publish);
  // A step that failed for want of room must not keep the next ones from finding any.
  if (status.code() == Code::kNoSpace && identity.rank == 0 && retention_->MakeRoom(job->step)) {
    status = Patiently(context_, job, publish);
  }
  return status;
}

}  // namespace deepfreeze
