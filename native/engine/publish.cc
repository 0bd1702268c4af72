#include "engine/publish.h"

#include "engine/patience.h"

namespace deepfreeze {

Status Publisher::Publish(const JobRef& job) {
  Status status = Contained([&] { return job->shard->Seal(); });
  if (status.ok()) context_.progress->Moved(job);
  if (status.ok()) status = PublishRecord(job);
  job->shard.reset();
  if (status.ok() || status.code() == Code::kClosed) return status;
  return FailStep(context_, job, std::move(status));
}

Status Publisher::PublishRecord(const JobRef& job) {
  const Identity identity = context_.options.At(job->step);
  bool perhaps = false;  // whether other ranks may see the record; after an error too
  const auto publish = [&]() -> Status {
    Status status = context_.meeting->Sealed(Record{identity, job->extents, job->private_data, job->values}, &perhaps);
    // A record that rank 0 may see is not written again: the step may be committed already, under another name.
    return perhaps && identity.rank != 0 ? Status() : std::move(status);
  };
  Status status = Patiently(context_, job, publish);
  // Without room on the store, what failed steps have left there is removed first, and the record published again.
  if (status.code() == Code::kNoSpace && identity.rank == 0 && remover_->MakeRoom(job->step)) {
    status = Patiently(context_, job, publish);
  }
  return perhaps && identity.rank != 0 ? Status() : status;
}

}  // namespace deepfreeze
