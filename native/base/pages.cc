#include "base/pages.h"

namespace deepfreeze {

std::shared_ptr<Pages> Pages::Allocate(Env* env, uint64_t size) {
  char* data = env->AllocatePages(size);
  return data == nullptr ? nullptr : std::shared_ptr<Pages>(new Pages(env, data, size));
}

Pages::Pages(Env* env, char* data, uint64_t size) : env_(env), process_(env->ProcessId()), data_(data), size_(size) {}

Pages::~Pages() {
  // A forked child does not have these pages (MADV_DONTFORK). Other memory of the child may lie at the address.
  if (env_->ProcessId() == process_) env_->FreePages(data_, size_);
}

}  // namespace deepfreeze
