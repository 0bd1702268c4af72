// Page-aligned memory from Env::AllocatePages: captures lie in it, and writes past the page cache are made from it.
#ifndef DEEPFREEZE_BASE_PAGES_H_
#define DEEPFREEZE_BASE_PAGES_H_

#include <functional>
#include <memory>

#include "base/env.h"

namespace deepfreeze {

// Whether to leave off; asked between two pieces of long work. Empty: never.
using StopWhen = std::function<bool()>;

// The most bytes of one call of Env::Populate: those of a huge page. Other threads wait about a millisecond for it.
constexpr uint64_t kPopulatePiece = kHugePage;

// Calls Env::Populate for [data, data + size), piece by piece. *done: how many bytes have their pages; the call goes on
// from there, and counts it up. kClosed if `stop` has said so; else the first error of a piece.
Status PopulatePieces(Env* env, char* data, uint64_t size, const StopWhen& stop, uint64_t* done);

// The same for memory of File::Map, which begins a huge page, with huge pages wherever the system makes such of small
// ones (Env::JoinPages). *join: whether that is tried; false from its first error on, which is *why then, and pages are
// small from there on.
Status PopulateHuge(Env* env, char* data, uint64_t size, const StopWhen& stop, uint64_t* done, bool* join, Status* why);

// The destructor gives the memory back, in the process that allocated it alone: a forked child does not have it.
// Thread-compatible.
class Pages {
 public:
  // size bytes, zeroed and touched; null if there is no room, or if `stop` has said so. env must outlive the pages.
  static std::shared_ptr<Pages> Allocate(Env* env, uint64_t size, const StopWhen& stop = {});
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
