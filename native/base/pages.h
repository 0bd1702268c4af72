// Memory in pages of its own: what captures lie in, and what is written past the page cache.
#ifndef DEEPFREEZE_BASE_PAGES_H_
#define DEEPFREEZE_BASE_PAGES_H_

#include <memory>

#include "base/env.h"

namespace deepfreeze {

// Thread-compatible.
class Pages {
 public:
  // Null if there is no room. env outlives the pages.
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
