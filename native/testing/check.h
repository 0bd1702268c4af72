// The test framework of the unit tests: CHECK, CHECK_EQ and CHECK_OK, which end the program with exit code 1 when they
// fail, and a temporary directory.
#ifndef DEEPFREEZE_TESTING_CHECK_H_
#define DEEPFREEZE_TESTING_CHECK_H_

#include <cstdio>
#include <cstdlib>
#include <string>

#include "store/retention.h"

namespace deepfreeze {

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: CHECK(%s) failed\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                      \
    }                                                                                    \
  } while (0)
#define CHECK_EQ(a, b) CHECK((a) == (b))
#define CHECK_OK(expression)                                                                    \
  do {                                                                                          \
    const ::deepfreeze::Status check_status_ = (expression);                                    \
    if (!check_status_.ok()) {                                                                  \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, check_status_.message().c_str()); \
      std::exit(1);                                                                             \
    }                                                                                           \
  } while (0)

// A new directory in `where`; the destructor removes it with everything in it.
class TemporaryDir {
 public:
  explicit TemporaryDir(const char* where = std::getenv("TMPDIR")) {
    path_ = std::string(where != nullptr ? where : "/tmp") + "/deepfreeze-test-XXXXXX";
    CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~TemporaryDir() { CHECK_OK(RemoveTree(Env::Posix(), path_)); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_TESTING_CHECK_H_
