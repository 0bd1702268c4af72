#include "store/node_meeting.h"

#include <cerrno>
#include <utility>

#include "base/crc32c.h"
#include "store/records.h"

namespace deepfreeze {
namespace {

static_assert(NodePage::kMaxRecord == kMaxNodeRecord, "what is in the page fits into the node's file");

}  // namespace

NodeMeeting::NodeMeeting(std::unique_ptr<Meeting> run, Env* env, const Identity& identity, const std::string& directory,
                         const std::vector<uint32_t>& ranks, uint64_t patience_us)
    : env_(env),
      identity_(identity),
      patience_us_(patience_us),
      ranks_{ranks.front(), ranks.back(), ranks[1] - ranks[0]},
      run_(std::move(run)),
      page_(std::make_unique<NodePage>(env, directory, identity, ranks)) {
  regular_ = run_->SealsTogether() && ranks_.count() == ranks.size() && ranks.size() <= kMostOnNode;
  for (const uint32_t rank : ranks) regular_ = regular_ && ranks_.Has(rank);
  if (!page_->Open().ok()) page_.reset();
}

template <typename Change>
Status NodeMeeting::Note(int64_t step, const Change& change) {
  Sight& sight = own_[step];
  sight.step = step;
  change(&sight);
  if (own_.size() > NodePage::kSteps) own_.erase(own_.begin());
  std::vector<Sight> sights;
  for (const auto& [number, one] : own_) sights.push_back(one);
  return page_ != nullptr ? page_->Write(sights) : Status();
}

void NodeMeeting::Forget(int64_t step) {
  others_.erase(step);
  kept_.erase(step);
}

void NodeMeeting::Ended(int64_t step, bool committed) {
  {
    const MutexLock lock(&mutex_);
    Forget(step);
  }
  run_->Ended(step, committed);
}

Status NodeMeeting::Sealed(const Record& record, Seal* seal) {
  std::vector<std::string> all;
  if (!Share(record, &all)) {
    const Status status = run_->Sealed(record, seal);
    const MutexLock lock(&mutex_);
    const auto on_store = [](Sight* sight) { sight->record = Where::kStore; };
    if (*seal != Seal::kUnseen) (void)Note(record.identity.step, on_store).ok();
    return status;
  }
  // Another rank may write the record into the node's file from now on; the last one to come does.
  *seal = Seal::kSeen;
  if (all.empty()) return {};
  std::string records;
  for (const std::string& one : all) records += one;
  Status status = run_->SealedTogether(record, ranks_, records, seal);
  if (*seal == Seal::kByAnother || !status.ok()) return status;
  const MutexLock lock(&mutex_);
  kept_.erase(record.identity.step);
  (void)Note(record.identity.step, [](Sight* sight) { sight->record = Where::kAll; }).ok();  // the others write theirs
  return {};
}

bool NodeMeeting::Share(const Record& record, std::vector<std::string>* all) {
  const int64_t step = record.identity.step;
  const MutexLock lock(&mutex_);
  std::vector<std::vector<Sight>> others;
  if (page_ == nullptr || !regular_ || !page_->Read(&others).ok() || !page_->shared()) return false;
  const std::string bytes = EncodeRecord(record);
  if (bytes.size() > NodePage::kMaxRecord) return false;
  const uint32_t place = puts_++ % NodePage::kPlaces;
  if (!page_->Put(place, bytes).ok()) return false;
  const auto in_page = [&](Sight* sight) {
    sight->record = Where::kPage;
    sight->place = place;
    sight->size = static_cast<uint32_t>(bytes.size());
    sight->crc = Crc32c(0, bytes.data(), bytes.size());
  };
  if (!Note(step, in_page).ok()) return false;
  run_->SealedByAnother(step);
  kept_[step] = Kept{record, env_->NowMicros()};
  *all = Gather(step, bytes);
  return true;
}

std::vector<std::string> NodeMeeting::Gather(int64_t step, const std::string& own) {
  std::vector<std::string> all;
  std::vector<std::vector<Sight>> others;
  if (!page_->Read(&others).ok()) return {};
  for (size_t i = 0; i < others.size(); ++i) {
    all.emplace_back();
    if (ranks_.first + i * ranks_.distance == identity_.rank) all.back() = own;
    for (const Sight& sight : others[i]) {
      if (sight.step != step || sight.record != Where::kPage) continue;
      if (!page_->Get(i, sight, &all.back()).ok()) return {};
    }
    if (all.back().empty()) return {};
  }
  return all;
}

Status NodeMeeting::WriteIfLate(int64_t step) {
  Record record;
  {
    const MutexLock lock(&mutex_);
    const auto kept = kept_.find(step);
    if (kept == kept_.end()) return {};
    std::vector<std::vector<Sight>> others;
    if (page_->Read(&others).ok()) {
      for (const auto& sights : others) {
        for (const Sight& sight : sights) {
          if (sight.step != step || sight.record != Where::kAll) continue;
          kept_.erase(kept);
          return {};
        }
      }
    }
    if (env_->NowMicros() < kept->second.since_us + patience_us_) return {};
    record = kept->second.record;
  }
  Seal seal = Seal::kUnseen;
  Status status = run_->Sealed(record, &seal);
  // ENOENT: the step is decided.
  if (!status.ok() && seal == Seal::kUnseen) return status.error() == ENOENT ? Status() : status;
  const MutexLock lock(&mutex_);
  kept_.erase(step);
  return {};
}

Status NodeMeeting::Look(int64_t step, Verdict* verdict, std::string* why) {
  (void)WriteIfLate(step).ok();  // the next look tries again
  if (SeenByAnother(step, verdict)) return {};
  DF_RETURN_IF_ERROR(run_->Look(step, verdict, why));
  if (*verdict == Verdict::kPending) return {};
  const MutexLock lock(&mutex_);
  Forget(step);
  (void)Note(step, [&](Sight* sight) { sight->verdict = *verdict; }).ok();  // the others look for themselves then
  return {};
}

bool NodeMeeting::SeenByAnother(int64_t step, Verdict* verdict) {
  const MutexLock lock(&mutex_);
  std::vector<std::vector<Sight>> others;
  if (page_ == nullptr || !page_->Read(&others).ok()) return false;
  uint32_t looks = 0;
  *verdict = Verdict::kPending;
  for (const auto& sights : others) {
    for (const Sight& sight : sights) {
      if (sight.step != step) continue;
      looks += sight.looks;
      if (sight.verdict != Verdict::kPending) *verdict = sight.verdict;
    }
  }
  const bool looked = std::exchange(others_[step], looks) != looks;
  // Of a step that has failed, or is superseded, the store has the reason, and awaits this rank's answer.
  if (*verdict == Verdict::kFailed || *verdict == Verdict::kSuperseded) return false;
  if (*verdict == Verdict::kCommitted) {
    Forget(step);
    run_->Ended(step, true);
  }
  if (*verdict == Verdict::kCommitted || looked) return true;
  // Before the look, so that no two ranks look at the same time.
  (void)Note(step, [](Sight* sight) { ++sight->looks; }).ok();
  return false;
}

Status NodeMeeting::Roll(int64_t step, PartialState* roll, std::string* failure) {
  if (identity_.rank == 0) DF_RETURN_IF_ERROR(WriteIfLate(step));
  return run_->Roll(step, roll, failure);
}

}  // namespace deepfreeze
