#include "store/owner.h"

#include <cerrno>

#include "format/names.h"

namespace deepfreeze {
namespace {

constexpr size_t kSize = 33;  // 32 digits and a newline

}  // namespace

Status CheckOwner(Env* env, const std::string& run_dir, const Id& attempt) {
  const std::string path = Join(run_dir, kOwnerName);
  std::string text;
  const Status status = ReadSmallFile(env, path, kSize, &text);
  if (status.error() == ENOENT) return {};
  DF_RETURN_IF_ERROR(status);
  Id owner{};
  if (text.size() != kSize || text.back() != '\n' || !Unhex(text.substr(0, kSize - 1), owner.data(), owner.size())) {
    return Status::FourPart(Code::kCorrupt, path, "an attempt's id and a newline",
                            std::to_string(text.size()) + " other bytes",
                            "Remove it if no other job writes to this run");
  }
  if (owner == attempt) return {};
  return Status(Code::kTaken, run_dir + ": attempt " + Hex(owner) + " has taken the run from this job");
}

}  // namespace deepfreeze
