// The TensorFlow op DeepfreezeCapture, which copies its inputs into a capture area, and three ops beside it. They are
// registered with the TensorFlow that the process has loaded, through TensorFlow's C interface, whose functions are
// looked up at run time.
// That interface does not change between versions, and nothing of TensorFlow is needed to build this.
#ifndef DEEPFREEZE_GRAPH_TENSORFLOW_OP_H_
#define DEEPFREEZE_GRAPH_TENSORFLOW_OP_H_

#include "base/status.h"

namespace deepfreeze {

// Registers the ops. Once per process is enough; later calls return the first one's result. RETURNS kInvalid if the
// process has no TensorFlow, and may be repeated then; or if it has one without that interface. Thread-safe.
//
//   DeepfreezeCapture(tensors: T), T: list(type), area: int, group: int: copies, or holds, the tensors of a group.
//   DeepfreezeCaptureHeld(), area: int, group: int: copies the tensors of a group that are held.
//   DeepfreezeStepBegins(), area: int: notes the time, by which the area knows when a group is updated.
//   DeepfreezeMark(), area: int, number: int: notes the time of a mark in the step.
// On the CPU, stateful, no outputs.
Status RegisterTensorflowOp();

}  // namespace deepfreeze

#endif  // DEEPFREEZE_GRAPH_TENSORFLOW_OP_H_
