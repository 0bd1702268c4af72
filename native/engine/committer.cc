#include "engine/committer.h"

#include <algorithm>
#include <utility>

#include "format/names.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kLongestAfterErrorUs = 5000000;
// How often a rank other than 0 calls the roll within the time-out: as often as a rank that takes long shows a
// heartbeat.
constexpr uint64_t kRollsPerBound = 8;
constexpr size_t kHeardSteps = 64;
constexpr char kUnknown[] = ". It is unknown whether the step is committed: rank 0 alone decides it";

}  // namespace

Status Committer::Commit(const JobRef& job) {
  Look look(Usual());
  Status status = Contained([&] { return Await(job, &look); });
  if (status.code() == Code::kClosed) return status;
  if (!status.ok()) return decides() && look.doubt.ok() ? FailStep(context_, job, std::move(status)) : status;
  job->durable = look.durable;
  Heard(job->step, context_.env->NowMicros());
  const MutexLock lock(&mutex_);
  pauses_.Learn(look.pauses);
  return {};
}

Pauses Committer::Usual() {
  const MutexLock lock(&mutex_);
  return pauses_;
}

Status Committer::Await(const JobRef& job, Look* look) {
  const Options& options = context_.options;
  const uint64_t bound_us = options.commit_timeout_ms * 1000;
  const uint64_t rolls_every_us = bound_us / kRollsPerBound;
  const uint64_t written_us = job->submitted_us + static_cast<uint64_t>(job->written_s * 1e6);
  const std::string where = Join(context_.store->place(), StepName(job->step));
  // The time-out counts from the last movement: of this rank's bytes, or of another rank, also of one that was seen
  // while an earlier step was waited for.
  const auto waited_us = [&](uint64_t now_us) {
    const uint64_t since_us = std::max(written_us, HeardUntil(job->step));
    return std::max(now_us, since_us) - since_us;
  };
  Status status;
  // False: the engine is stopping.
  const auto pause = [&](uint64_t now_us) {
    // After an error the pauses grow longer: a server that comes back must not be loaded with one commit after another.
    const uint64_t longest_us = status.transient() ? kLongestAfterErrorUs : Pauses::kLongestUs;
    const uint64_t left_us = bound_us - std::min(bound_us, waited_us(now_us));
    const uint64_t most_us = std::min(left_us, std::max(rolls_every_us, Pauses::kShortestUs));
    const CountedTime time(context_.env, &context_.counters->pauses, &context_.counters->pause_us, 0);
    context_.table->PauseCommit(std::min(most_us, look->pauses.Next(now_us, longest_us)));
    return !context_.table->stopping();
  };
  look->rolled_us = context_.env->NowMicros();
  look->pauses.Begin(written_us);
  // Rank 0 looks at once, because the others wait for its verdict.
  bool goes_on = decides() || pause(look->rolled_us);
  while (goes_on) {
    // Taken before the look: a look that takes longer than the time-out must still be followed by another one.
    const uint64_t now_us = context_.env->NowMicros();
    const bool rolls = waited_us(now_us) >= bound_us || now_us >= look->rolled_us + rolls_every_us;
    status = LookAt(job, now_us, rolls, look);
    if (look->over) return status;
    if (waited_us(now_us) >= bound_us) {
      const uint64_t ms = options.commit_timeout_ms;
      const std::string bound = ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
      // When rank 0 gives up, the step has failed. Another rank that gives up does not know what rank 0 has decided.
      const bool unknown = !decides() || !look->doubt.ok();
      return Status(Code::kIncomplete,
                    where + ": " + WaitsFor(status, *look) + " after " + bound + (unknown ? kUnknown : ""));
    }
    // Without memory for the text, the step merely has none.
    BestEffort([&] {
      context_.table->SetWaitsFor(job, "waits for its commit (" + where + ": " + WaitsFor(status, *look) + ")");
    });
    if (waited_us(now_us) / rolls_every_us > look->logged) {
      look->logged = waited_us(now_us) / rolls_every_us;
      BestEffort([&] {
        const std::string ms = std::to_string(waited_us(now_us) / 1000) + " ms";
        context_.log->Add(where + ": " + WaitsFor(status, *look) + " after " + ms);
      });
    }
    goes_on = pause(now_us);
  }
  return Status(Code::kClosed, "the engine is shutting down");
}

std::string Committer::WaitsFor(const Status& status, const Look& look) const {
  const uint32_t world = context_.options.identity.world;
  if (!status.ok()) return "the run could not be looked at (" + status.message() + ")";
  const bool whole = look.roll.present.size() >= world;
  return whole || !look.roll.exists ? "rank 0 has not committed it" : DescribeMissing(look.roll, world);
}

void Committer::Heard(int64_t step, uint64_t when_us) {
  context_.table->Moved();
  const MutexLock lock(&mutex_);
  uint64_t& last = heard_us_[step];
  last = std::max(last, when_us);
  while (heard_us_.size() > kHeardSteps) heard_us_.erase(heard_us_.begin());
}

uint64_t Committer::HeardUntil(int64_t step) {
  const MutexLock lock(&mutex_);
  uint64_t last = 0;
  for (const auto& [older, when_us] : heard_us_) {
    if (older <= step) last = std::max(last, when_us);
  }
  return last;
}

Status Committer::LookAt(const JobRef& job, uint64_t now_us, bool rolls, Look* look) {
  context_.counters->looks.Add();
  if (!decides()) return Contained([&] { return Watch(job, now_us, rolls, look); });
  if (!look->doubt.ok()) return Contained([&] { return ResolveDoubt(job->step, look); });
  const Status status = Contained([&]() -> Status {
    DF_RETURN_IF_ERROR(GivenUp(job));
    return CommitIfWhole(job, now_us, look);
  });
  // An error of rank 0's commit fails the step, unless the error may pass or leaves open whether the step is committed.
  // Then rank 0 looks again. It may repeat every part of a commit but a failed sync, whose error is never transient.
  look->over = look->over || (!status.ok() && !status.transient() && look->doubt.ok());
  return status;
}

Status Committer::ResolveDoubt(int64_t step, Look* look) {
  Fate fate = Fate::kUnknown;
  DF_RETURN_IF_ERROR(Settle(step, look, &fate));
  if (fate != Fate::kUncommitted) return {};
  Status was = std::exchange(look->doubt, Status());
  look->over = !was.transient();
  return was;
}

Status Committer::Settle(int64_t step, Look* look, Fate* fate) {
  Status settled = Contained([&] { return context_.store->Settle(step, context_.options.identity.attempt, fate); });
  if (*fate != Fate::kCommitted) return settled;
  look->over = true;
  look->durable = settled.ok();
  if (!look->durable) BestEffort([&] { NotifyUnsynced(step, settled); });
  return {};
}

Status Committer::Roll(int64_t step, uint64_t now_us, Look* look, std::string* failure) {
  DF_RETURN_IF_ERROR(context_.meeting->Roll(step, &look->roll, failure));
  look->rolled_us = now_us;
  BestEffort([&] {
    if (look->pulse.Moved(look->roll)) Heard(step, now_us);
  });
  return {};
}

Status Committer::CommitIfWhole(const JobRef& job, uint64_t now_us, Look* look) {
  const int64_t step = job->step;
  const Options& options = context_.options;
  std::string failure;
  DF_RETURN_IF_ERROR(Roll(step, now_us, look, &failure));
  // This rank's record is among the shards. If they are missing, a commit that had returned an error was carried out
  // later, or another process has removed them.
  if (!look->roll.exists) {
    Fate fate = Fate::kUnknown;
    return Settle(step, look, &fate);
  }
  if (look->roll.present.size() < options.identity.world) {
    return failure.empty() ? Status() : Status(Code::kIncomplete, failure);
  }
  look->pauses.Ended(now_us);
  const Identity expected = options.At(step);
  Divergence known;
  CommitRequest request;
  request.step = step;
  request.attempt = expected.attempt;
  request.expected = &expected;
  request.whole_pages = true;
  request.replace = true;
  request.own = true;
  request.known = &known;
  {
    const MutexLock lock(&mutex_);
    known = replicas_.known();
    request.refuse_diverged = replicas_.Refuses(options.refuse_diverged);
  }
  CommitOutcome outcome;
  const Status status = Contained([&] { return context_.store->Commit(request, &outcome); });
  // The verdict stands also if there is no memory for these notes.
  BestEffort([&] {
    if (outcome.compared && !look->compared) {
      look->compared = true;
      const MutexLock lock(&mutex_);
      replicas_.Note(step, outcome.divergence);
    }
    if (outcome.divergence.tensors > 0) context_.table->SetDivergence(job, outcome.divergence);
  });
  if (outcome.in_doubt) look->doubt = status;
  DF_RETURN_IF_ERROR(status);
  look->over = true;
  look->durable = outcome.unsynced.ok();
  if (!look->durable) BestEffort([&] { NotifyUnsynced(step, outcome.unsynced); });
  return {};
}

void Committer::NotifyUnsynced(int64_t step, const Status& why) {
  context_.table->Notify(Join(context_.store->place(), StepName(step)) +
                         ": the step is committed and not known to be durable (" + why.message() +
                         "). Only a loss of power may take it; older checkpoints stay until a later commit");
}

Status Committer::Watch(const JobRef& job, uint64_t now_us, bool rolls, Look* look) {
  const int64_t step = job->step;
  Verdict verdict = Verdict::kPending;
  std::string failure;
  DF_RETURN_IF_ERROR(context_.meeting->Look(step, &verdict, &failure));
  look->over = verdict != Verdict::kPending;
  if (verdict == Verdict::kCommitted) look->pauses.Ended(now_us);
  DF_RETURN_IF_ERROR(Heed(job, verdict, failure));
  if (verdict == Verdict::kPending && rolls) {
    DF_RETURN_IF_ERROR(Roll(step, now_us, look, &failure));
    look->over = !failure.empty();
  }
  return failure.empty() ? Status() : Status(Code::kIncomplete, failure);
}

}  // namespace deepfreeze
