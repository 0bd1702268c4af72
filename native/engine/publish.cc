#include "engine/publish.h"

namespace deepfreeze {

void Publisher::Run() {
  while (const JobRef job = context_.table->NextForPublish()) {
    Status status = Contained([&] { return job->partial->Sync(); });
    if (status.ok()) status = PublishRecord(job);
    job->partial.reset();
    if (status.ok()) {
      context_.table->Published(job);
    } else {
      FailStep(context_, job, status);
    }
  }
}

Status Publisher::PublishRecord(const JobRef& job) {
  const Identity identity = context_.options.At(job->step);
  const auto publish = [&] { return job->partial->Publish(Record{identity, job->extents, job->private_data}); };
  Status status = Contained(publish);
  // A step that failed for want of room must not keep the next ones from finding any.
  if (status.code() == Code::kNoSpace && identity.rank == 0 && retention_->MakeRoom(job->step)) {
    status = Contained(publish);
  }
  return status;
}

}  // namespace deepfreeze
