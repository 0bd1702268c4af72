#include "engine/commit.h"

#include <algorithm>
#include <utility>

#include "format/names.h"
#include "store/commit.h"
#include "store/owner.h"

namespace deepfreeze {
namespace {

constexpr uint64_t kFirstPauseMs = 1;
constexpr uint64_t kLongestPauseMs = 200;
constexpr uint64_t kLongestAfterErrorMs = 5000;
constexpr char kUnknown[] = ". It is unknown whether the step is committed: rank 0 alone decides it";

}  // namespace

void Committer::Run() {
  while (const JobRef job = context_.table->NextForCommit()) {
    Look look;
    Status status = Contained([&] { return Await(job, &look); });
    if (status.code() == Code::kClosed) return;
    if (!status.ok()) {
      // The other ranks have published their records and wait for rank 0's verdict. With a marker of the failure they
      // need not wait until their time-out.
      if (decides() && look.doubt.ok()) {
        const Identity identity = context_.options.At(job->step);
        const std::string& run_dir = context_.options.run_dir;
        (void)Contained([&] { return MarkFailed(context_.env, run_dir, identity, status.message()); }).ok();
      }
      context_.table->Fail(job, std::move(status));
      continue;
    }
    // Before the caller can hear of the commit and ask for removals.
    if (decides()) context_.table->AskCleanUp(job->step, look.durable);
    context_.table->Committed(job);
    Heard(context_.env->NowMicros());
    context_.table->Settle(job);
  }
}

Status Committer::Await(const JobRef& job, Look* look) {
  const Options& options = context_.options;
  const uint64_t written_us = job->submitted_us + static_cast<uint64_t>(job->written_s * 1e6);
  const std::string where = Join(options.run_dir, StepName(job->step));
  uint64_t pause_ms = kFirstPauseMs;
  size_t seen = 0;
  Pulse pulse;
  for (;;) {
    // Taken before the look: a look that takes longer than the time-out must still be followed by another one.
    const uint64_t now_us = context_.env->NowMicros();
    Status status = LookAt(job, look);
    if (look->over) return status;
    const PartialState& state = look->state;
    BestEffort([&] {
      if (pulse.Moved(state)) Heard(now_us);
    });
    // The time-out counts from the last movement: of this rank's bytes, or of another rank, also of one that was seen
    // while an earlier step was waited for.
    const uint64_t since_us = std::max(written_us, heard_us_);
    const uint64_t waited_ms = (std::max(now_us, since_us) - since_us) / 1000;
    const auto what = [&]() -> std::string {
      if (!status.ok()) return "the run could not be looked at (" + status.message() + ")";
      const bool whole = state.present.size() >= options.identity.world;
      return whole || !state.exists ? "rank 0 has not committed it" : DescribeMissing(state, options.identity.world);
    };
    if (waited_ms >= options.commit_timeout_ms) {
      const uint64_t ms = options.commit_timeout_ms;
      const std::string bound = ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
      // When rank 0 gives up, the step has failed. Another rank that gives up does not know what rank 0 has decided.
      const bool unknown = !decides() || !look->doubt.ok();
      return Status(Code::kIncomplete, where + ": " + what() + " after " + bound + (unknown ? kUnknown : ""));
    }
    // Without memory for the text, the step merely has none.
    BestEffort([&] { context_.table->SetWaitsFor(job, "waits for its commit (" + where + ": " + what() + ")"); });
    if (state.present.size() != seen) pause_ms = kFirstPauseMs;
    seen = state.present.size();
    context_.table->PauseCommit(std::min(pause_ms, options.commit_timeout_ms - waited_ms));
    if (context_.table->stopping()) return Status(Code::kClosed, "the engine is shutting down");
    // After an error the pauses grow longer: a server that comes back must not be loaded with one commit after another.
    pause_ms = std::min(2 * pause_ms, status.transient() ? kLongestAfterErrorMs : kLongestPauseMs);
  }
}

void Committer::Heard(uint64_t when_us) {
  heard_us_ = when_us;
  context_.table->Moved();
}

Status Committer::LookAt(const JobRef& job, Look* look) {
  look->state = PartialState();
  if (decides() && look->doubt.ok()) {
    const Status status = Contained([&] { return CommitIfWhole(job, look); });
    // An error of rank 0's commit fails the step, unless the error may pass or leaves open whether the step is
    // committed. Then rank 0 looks again. It may repeat every part of a commit but a failed sync, whose error is never
    // transient.
    look->over = look->over || (!status.ok() && !status.transient() && look->doubt.ok());
    return status;
  }
  DF_RETURN_IF_ERROR(Contained([&] { return Watch(job->step, look); }));
  if (!decides()) return {};
  // Rank 0 was in doubt. The directory's name, step-N or step-N.partial-ATTEMPT, now tells whether the step is
  // committed.
  if (look->over) {
    SyncName(job->step, look);
    return {};
  }
  if (!look->state.exists) return {};
  Status was = std::exchange(look->doubt, Status());
  look->over = !was.transient();
  return was;
}

void Committer::SyncName(int64_t step, Look* look) {
  look->over = true;
  const Status synced = Contained([&] { return context_.env->SyncDir(context_.options.run_dir); });
  look->durable = synced.ok();
  if (!look->durable) BestEffort([&] { NotifyUnsynced(step, synced); });
}

Status Committer::CommitIfWhole(const JobRef& job, Look* look) {
  const int64_t step = job->step;
  const Options& options = context_.options;
  DF_RETURN_IF_ERROR(ScanPartial(context_.env, options.run_dir, step, options.identity.attempt, &look->state));
  // This rank has published its record in the partial directory. If the directory is missing, a rename that had
  // returned an error was carried out later, or another process has removed the directory.
  if (!look->state.exists) {
    bool committed = false;
    DF_RETURN_IF_ERROR(IsCommitted(context_.env, options.run_dir, step, options.identity.attempt, &committed));
    if (!committed) return CheckOwner(context_.env, options.run_dir, options.identity.attempt);
    SyncName(step, look);
    return {};
  }
  if (look->state.present.size() < options.identity.world) return FailureOfOther(step, look->state);
  const Identity expected = options.At(step);
  CommitRequest request;
  request.run_dir = options.run_dir;
  request.step = step;
  request.attempt = expected.attempt;
  request.expected = &expected;
  request.whole_pages = true;
  request.replace = true;
  request.own = true;
  request.known = &replicas_.known();
  request.refuse_diverged = replicas_.Refuses(options.refuse_diverged);
  CommitOutcome outcome;
  const Status status = Contained([&] { return Commit(context_.env, request, &outcome); });
  // The verdict stands also if there is no memory for these notes.
  BestEffort([&] {
    replicas_.Note(step, outcome.compared, outcome.divergence);
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
  context_.table->Notify(Join(context_.options.run_dir, StepName(step)) +
                         ": the step is committed and not known to be durable (" + why.message() +
                         "). Only a loss of power may take it; older checkpoints stay until a later commit");
}

Status Committer::Watch(int64_t step, Look* look) {
  const Options& options = context_.options;
  const Id& attempt = options.identity.attempt;
  DF_RETURN_IF_ERROR(IsCommitted(context_.env, options.run_dir, step, attempt, &look->over));
  if (look->over) return {};
  DF_RETURN_IF_ERROR(ScanPartial(context_.env, options.run_dir, step, attempt, &look->state));
  // The step was committed after the look above; or it was committed, replaced by a newer one, and removed.
  if (!look->state.exists) return NewerCommitted(step, &look->over);
  const Status failure = FailureOfOther(step, look->state);
  look->over = !failure.ok();
  return failure;
}

Status Committer::NewerCommitted(int64_t step, bool* newer) {
  const Options& options = context_.options;
  std::vector<std::string> names;
  bool exists = false;
  DF_RETURN_IF_ERROR(context_.env->List(options.run_dir, &names, &exists));
  for (const std::string& name : names) {
    const RunEntry entry = ParseRunEntry(name);
    if (*newer || entry.kind != EntryKind::kStep || entry.step <= step) continue;
    DF_RETURN_IF_ERROR(IsCommitted(context_.env, options.run_dir, entry.step, options.identity.attempt, newer));
  }
  return {};
}

Status Committer::FailureOfOther(int64_t step, const PartialState& state) {
  if (state.failed.empty()) return {};
  const Options& options = context_.options;
  const uint32_t rank = state.failed.front();
  const std::string text = ReadFailure(context_.env, options.run_dir, step, options.identity.attempt, rank);
  // The text of that rank's marker may itself quote a third rank's marker. It is then passed on as it is.
  const std::string lead = Join(options.run_dir, StepName(step)) + ": rank ";
  const bool answer = text.compare(0, lead.size(), lead) == 0 && text.find(" failed: ") != std::string::npos;
  const std::string message = answer ? text : lead + std::to_string(rank) + " failed: " + text;
  // This rank answers by a marker of its own. When every rank has left a marker, rank 0 may remove the directory. As
  // long as it is there, a rank can tell a failed step from one that was committed, replaced and removed.
  (void)MarkFailed(context_.env, options.run_dir, options.At(step), message).ok();
  return Status(Code::kIncomplete, message);
}

}  // namespace deepfreeze
