#include "base/status.h"

#include <cerrno>
#include <cstring>
#include <system_error>

namespace deepfreeze {
namespace {

// Whether an error may be gone a little later. EIO and ETIMEDOUT: server and client have lost contact. ESTALE: the
// server no longer knows the open file, which can be opened again by its name. EAGAIN: the server is busy. Other errors
// tell of a lasting state: no such name, no permission, no free descriptors.
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
