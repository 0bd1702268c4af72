// What a thread of the engine says of itself when it starts.
#ifndef DEEPFREEZE_BASE_THREAD_H_
#define DEEPFREEZE_BASE_THREAD_H_

namespace deepfreeze {

// Names the calling thread, for debuggers and top, and makes it step back for the host's own threads: by nice, as
// nice(1) does it, 0 to 19. A share of the processor remains even where the host leaves none idle.
void BecomeBackgroundThread(const char* name, int nice);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_THREAD_H_
