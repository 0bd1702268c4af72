// Page-aligned memory from Env::AllocatePages: captures lie in it, and writes past the page cache are made from it.
#ifndef DEEPFREEZE_BASE_PAGES_H_
#define DEEPFREEZE_BASE_PAGES_H_

#include <memory>

#include "base/env.h"

namespace deepfreeze {

// The destructor gives the memory back, in the process that allocated it alone: a forked child does not have it.
// Thread-compatible.
class Pages {
 public:
  // size bytes, zeroed and touched; null if there is no room. env must outlive the pages.
  static std::shared_ptr<Pages> Allocate(Env* env, uint64_t size);
  ~Pages();
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  char* data() const { return data_; }
  uint64_t size() const { return size_; }

 private:
  Pages(Env* env, char* data, uint64_t size);

  Env* const env_;
  const int64_t process_;
  char* const data_;
  const uint64_t size_;
};

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_PAGES_H_
