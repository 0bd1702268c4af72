// Name and priority of the engine's threads.
#ifndef DEEPFREEZE_BASE_THREAD_H_
#define DEEPFREEZE_BASE_THREAD_H_

namespace deepfreeze {

// Names the calling thread, for debuggers and top, makes it a batch thread, and adds `nice` (0 to 19) to its nice
// value, so that the training's threads go before it. The thread keeps a share of the processor even if they leave no
// core idle. Where the system refuses, the thread keeps its priority. Called once, by a thread of the engine when it
// starts.
void BecomeBackgroundThread(const char* name, int nice);

}  // namespace deepfreeze

#endif  // DEEPFREEZE_BASE_THREAD_H_
