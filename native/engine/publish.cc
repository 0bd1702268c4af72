#include "engine/publish.h"

#include "engine/patience.h"

namespace deepfreeze {

Status Publisher::Publish(const JobRef& job) {
  Status status = Contained([&]() -> Status {
    DF_RETURN_IF_ERROR(GivenUp(job));
    return job->shard->Seal();
  });
  if (status.ok()) context_.progress->Moved(job);
  if (status.ok()) status = PublishRecord(job);
  job->shard.reset();
  if (status.ok() || status.code() == Code::kClosed) return status;
  return FailStep(context_, job, std::move(status));
}

Status Publisher::PublishRecord(const JobRef& job) {
  const Identity identity = context_.options.At(job->step);
  Seal seal = Seal::kUnseen;
  // A record that rank 0 may see is not written again: the step may be committed already, under another name.
  const auto open = [&] { return seal != Seal::kUnseen && identity.rank != 0; };
  const auto publish = [&]() -> Status {
    if (seal == Seal::kUnseen) DF_RETURN_IF_ERROR(GivenUp(job));
    Status status = context_.meeting->Sealed(Record{identity, job->extents, job->private_data, job->values}, &seal);
    return open() ? Status() : std::move(status);
  };
  Status status = Patiently(context_, job, publish);
  // Without room on the store, what failed steps have left there is removed first, and the record published again.
  if (status.code() == Code::kNoSpace && identity.rank == 0 && remover_->MakeRoom(job->step)) {
    status = Patiently(context_, job, publish);
  }
  return open() ? Status() : status;
}

}  // namespace deepfreeze
