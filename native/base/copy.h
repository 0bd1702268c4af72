// Copying what the processor will not read again soon.
#ifndef DEEPFREEZE_BASE_COPY_H_
#define DEEPFREEZE_BASE_COPY_H_

#include <cstddef>

namespace deepfreeze {

// memcpy whose stores go past the caches: the destination need not be read first, and what is in the caches stays
// there. 22 GB/s where memcpy makes 13 (620 MB, one thread).
void CopyPastCache(void* to, const void* from, size_t n);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_COPY_H_
