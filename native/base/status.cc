#include "base/status.h"

#include <cerrno>
#include <system_error>

namespace deepfreeze {

Status Status::FromErrno(int error, const char* operation, const std::string& path) {
  const bool full = error == ENOSPC || error == EDQUOT;
  Status status(full ? Code::kNoSpace : Code::kIo,
                std::string(operation) + " " + path + ": " + std::generic_category().message(error));
  status.error_ = error;
  return status;
}

Status Status::FourPart(Code code, const std::string& where, const std::string& expected, const std::string& found,
                        const std::string& todo) {
  return Status(code, where + ": expected " + expected + "; found " + found + ". " + todo + ".");
}

}  // namespace deepfreeze
