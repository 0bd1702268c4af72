// The result of an operation: a code of the public header and a message for people.
//
// A Status is a value; an ok Status is cheap to copy. Thread-compatible.
#ifndef DEEPFREEZE_BASE_STATUS_H_
#define DEEPFREEZE_BASE_STATUS_H_

#include <string>
#include <utility>

namespace deepfreeze {

// The values are those of df_code; capi.cc checks that at compile time.
enum class Code {
  kOk = 0,
  kInvalid,
  kIo,
  kNoSpace,
  kTimeout,
  kCorrupt,
  kIncomplete,
  kClosed,
  kDiverged,
  kTaken,
  kSuperseded
};

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
  // The errno of the system call that failed; 0 if the error is not from a system call.
  int error() const { return error_; }
  // Whether the operation may succeed if it is repeated from its beginning a little later (EIO, ETIMEDOUT, ESTALE,
  // EAGAIN): a network file system returns such errors while its server restarts or hands over. Never true for a sync
  // or a close that failed: the data that it should have made durable may be lost, and a second call would succeed all
  // the same.
  bool transient() const { return transient_; }
  const std::string& message() const { return message_; }

 private:
  Code code_ = Code::kOk;
  int error_ = 0;
  bool transient_ = false;
  std::string message_;
};

// Evaluates an expression that gives a Status, and returns the Status from the calling function unless it is ok.
#define DF_RETURN_IF_ERROR(expression)              \
  do {                                              \
    ::deepfreeze::Status df_status_ = (expression); \
    if (!df_status_.ok()) return df_status_;        \
  } while (0)

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_STATUS_H_
