#include "base/status.h"

#include <cerrno>
#include <cstring>
#include <system_error>

namespace deepfreeze {
namespace {

// EIO and ETIMEDOUT: the server was not heard, or gave up a client that it did not hear. ESTALE: it has forgotten the
// file that was open; whoever begins anew opens it by its name. EAGAIN: it is busy. Others tell of what is, not of a
// moment: no such name, no permission, no descriptors.
bool Passes(int error) { return error == EIO || error == ETIMEDOUT || error == ESTALE || error == EAGAIN; }

bool MakesDurable(const char* operation) {
  for (const char* one : {"fsync", "fsync_dir", "fdatasync", "close"}) {
    if (std::strcmp(operation, one) == 0) return true;
  }
  return false;
}

}  // namespace

Status Status::FromErrno(int error, const char* operation, const std::string& path) {
  const bool full = error == ENOSPC || error == EDQUOT;
  Status status(full ? Code::kNoSpace : Code::kIo,
                std::string(operation) + " " + path + ": " + std::generic_category().message(error));
  status.error_ = error;
  status.transient_ = Passes(error) && !MakesDurable(operation);
  return status;
}

Status Status::FourPart(Code code, const std::string& where, const std::string& expected, const std::string& found,
                        const std::string& todo) {
  return Status(code, where + ": expected " + expected + "; found " + found + ". " + todo + ".");
}

}  // namespace deepfreeze
