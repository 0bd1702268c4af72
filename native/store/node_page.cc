#include "store/node_page.h"

#include <algorithm>
#include <cstring>

#include "base/coding.h"
#include "base/crc32c.h"
#include "format/names.h"

namespace deepfreeze {
namespace {

constexpr char kMagic[8] = {'D', 'F', 'L', 'O', 'O', 'K', 'S', '\n'};
constexpr size_t kPart = 512;  // bytes of a rank's part: the magic, a checksum, a number, the sights
constexpr size_t kHead = 16;
constexpr size_t kSight = 32;
static_assert(kHead + NodePage::kSteps * kSight <= kPart, "a rank's part has room for its sights");

std::string EncodePart(const std::vector<Sight>& sights) {
  std::string part(kPart, '\0');
  std::memcpy(part.data(), kMagic, sizeof(kMagic));
  const size_t n = std::min(sights.size(), NodePage::kSteps);
  Put32(part.data() + 12, static_cast<uint32_t>(n));
  for (size_t i = 0; i < n; ++i) {
    char* at = part.data() + kHead + i * kSight;
    Put64(at, static_cast<uint64_t>(sights[i].step));
    Put32(at + 8, sights[i].looks);
    Put32(at + 12, static_cast<uint32_t>(sights[i].verdict));
    Put32(at + 16, static_cast<uint32_t>(sights[i].record));
    Put32(at + 20, sights[i].place);
    Put32(at + 24, sights[i].size);
    Put32(at + 28, sights[i].crc);
  }
  Put32(part.data() + 8, Crc32c(0, part.data() + 12, kPart - 12));
  return part;
}

// The sights of a part. False for a part that was never written, or is being written.
bool DecodePart(const char* part, std::vector<Sight>* sights) {
  const size_t n = Get32(part + 12);
  if (std::memcmp(part, kMagic, sizeof(kMagic)) != 0 || Get32(part + 8) != Crc32c(0, part + 12, kPart - 12)) {
    return false;
  }
  if (n > NodePage::kSteps) return false;
  for (size_t i = 0; i < n; ++i) {
    const char* at = part + kHead + i * kSight;
    const uint32_t verdict = Get32(at + 12);
    const uint32_t record = Get32(at + 16);
    const Sight sight{static_cast<int64_t>(Get64(at)),
                      Get32(at + 8),
                      static_cast<Verdict>(verdict),
                      static_cast<Where>(record),
                      Get32(at + 20),
                      Get32(at + 24),
                      Get32(at + 28)};
    if (verdict > static_cast<uint32_t>(Verdict::kSuperseded) || record > static_cast<uint32_t>(Where::kAll))
      return false;
    if (sight.place >= NodePage::kPlaces || sight.size > NodePage::kMaxRecord) return false;
    sights->push_back(sight);
  }
  return true;
}

}  // namespace

NodePage::NodePage(Env* env, const std::string& directory, const Identity& identity, const std::vector<uint32_t>& ranks)
    : env_(env),
      path_(Join(directory, NodePageName(env->UserId(), identity.attempt, ranks.front()))),
      ranks_(ranks.size()),
      own_(static_cast<size_t>(std::lower_bound(ranks.begin(), ranks.end(), identity.rank) - ranks.begin())) {}

NodePage::~NodePage() {
  if (named_) (void)env_->Unlink(path_).ok();
}

Status NodePage::Open() {
  DF_RETURN_IF_ERROR(env_->Open(path_, OpenMode::kPrivate, &file_));
  named_ = true;
  return Write({});
}

Status NodePage::Write(const std::vector<Sight>& sights) {
  const std::string part = EncodePart(sights);
  return WriteFull(file_.get(), own_ * kPart, part.data(), part.size());
}

Status NodePage::Read(std::vector<std::vector<Sight>>* others) {
  std::string page(ranks_ * kPart, '\0');
  size_t have = 0;
  for (size_t done = 1; have < page.size() && done > 0; have += done) {
    DF_RETURN_IF_ERROR(file_->PRead(have, page.data() + have, page.size() - have, &done));
  }
  bool all = true;
  others->assign(ranks_, {});
  for (size_t i = 0; i < ranks_; ++i) {
    if (i != own_) all = DecodePart(page.data() + i * kPart, &(*others)[i]) && all;
  }
  if (all && named_) {
    named_ = false;
    (void)env_->Unlink(path_).ok();  // without its name it goes when the last rank closes it, also by its death
  }
  return {};
}

Status NodePage::Put(uint32_t place, const std::string& bytes) {
  return WriteFull(file_.get(), RecordAt(own_, place), bytes.data(), bytes.size());
}

Status NodePage::Get(size_t rank, const Sight& sight, std::string* bytes) {
  bytes->assign(sight.size, '\0');
  DF_RETURN_IF_ERROR(ReadFull(file_.get(), RecordAt(rank, sight.place), bytes->data(), bytes->size()));
  if (Crc32c(0, bytes->data(), bytes->size()) == sight.crc) return {};
  return Malformed(path_, "the record of the sight", "other bytes");
}

uint64_t NodePage::RecordAt(size_t rank, uint32_t place) const {
  return RoundUp(ranks_ * kPart, kMaxRecord) + (rank * kPlaces + place) * uint64_t{kMaxRecord};
}

}  // namespace deepfreeze
