#include "base/pages.h"

#include <algorithm>
#include <cerrno>

namespace deepfreeze {

Status PopulatePieces(Env* env, char* data, uint64_t size, const StopWhen& stop, uint64_t* done) {
  while (*done < size) {
    if (stop && stop()) return Status(Code::kClosed, "told to stop");
    // A piece ends where a huge page does, so that no huge page is found by halves.
    const uint64_t into = reinterpret_cast<uintptr_t>(data + *done) % kPopulatePiece;
    const uint64_t n = std::min(size - *done, kPopulatePiece - into);
    DF_RETURN_IF_ERROR(env->Populate(data + *done, n));
    *done += n;
  }
  return {};
}

Status PopulateHuge(Env* env, char* data, uint64_t size, const StopWhen& stop, uint64_t* done, bool* join,
                    Status* why) {
  // Each call of JoinPages has all processors tidy up their lists of pages first, so it is given many pages.
  constexpr uint64_t kMost = 16 * kHugePage;
  while (*join && *done % kHugePage == 0 && size - *done >= kHugePage) {
    const uint64_t n = std::min(kMost, (size - *done) / kHugePage * kHugePage);
    for (uint64_t at = 0; at < n; at += kHugePage) {
      if (stop && stop()) return Status(Code::kClosed, "told to stop");
      DF_RETURN_IF_ERROR(env->Populate(data + *done + at, kDirectUnit));
    }
    *why = env->JoinPages(data + *done, n);
    *join = why->ok();
    if (*join) *done += n;
  }
  return PopulatePieces(env, data, size, stop, done);
}

std::shared_ptr<Pages> Pages::Allocate(Env* env, uint64_t size, const StopWhen& stop) {
  char* data = env->AllocatePages(size);
  if (data == nullptr) return nullptr;
  std::shared_ptr<Pages> pages(new Pages(env, data, size));
  uint64_t done = 0;
  const Status populated = PopulatePieces(env, data, size, stop, &done);
  // After other errors, such as those of an old system, the pages are found when they are first written to.
  const bool none = populated.code() == Code::kClosed || populated.error() == ENOMEM;
  return none ? nullptr : pages;
}

Pages::Pages(Env* env, char* data, uint64_t size) : env_(env), process_(env->ProcessId()), data_(data), size_(size) {}

Pages::~Pages() {
  // A forked child does not have these pages (MADV_DONTFORK). Other memory of the child may lie at the address.
  if (env_->ProcessId() == process_) env_->FreePages(data_, size_);
}

}  // namespace deepfreeze
