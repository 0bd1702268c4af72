// What an operation came to: a code of the public header and a message for people.
//
// A Status is a value; copying is cheap while it is ok. Thread-compatible.
#ifndef DEEPFREEZE_BASE_STATUS_H_
#define DEEPFREEZE_BASE_STATUS_H_

#include <string>
#include <utility>

namespace deepfreeze {

// The values are those of df_code; capi.cc holds the two against each other.
enum class Code { kOk = 0, kInvalid, kIo, kNoSpace, kTimeout, kCorrupt, kIncomplete, kClosed, kDiverged, kTaken };

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  // The message names the operation, the file and the system's error: "pwrite RUN/x: No space left on device".
  static Status FromErrno(int error, const char* operation, const std::string& path);
  // "where: expected ...; found .... Todo."
  static Status FourPart(Code code, const std::string& where, const std::string& expected, const std::string& found,
                         const std::string& todo);

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  // The errno it came from, or 0.
  int error() const { return error_; }
  // Whether the same may go well a little later, if it is done from the beginning: a network file system answers so
  // while its server restarts or hands over. A sync or a close that failed is never such: what it was to keep may be
  // gone, and the next one would succeed without it.
  bool transient() const { return transient_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  int error_ = 0;
  bool transient_ = false;
  std::string message_;
};

// Leaves the calling function with the first Status that is not ok.
#define DF_RETURN_IF_ERROR(expression)              \
  do {                                              \
    ::deepfreeze::Status df_status_ = (expression); \
    if (!df_status_.ok()) return df_status_;        \
  } while (0)

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_STATUS_H_
