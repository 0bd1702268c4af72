// The op DeepfreezeCapture: copies its inputs into a capture area. Registered with the TensorFlow that the process has
// loaded, through TensorFlow's C interface, which does not change between versions: nothing of TensorFlow is needed to
// build this.
#ifndef DEEPFREEZE_GRAPH_TENSORFLOW_OP_H_
#define DEEPFREEZE_GRAPH_TENSORFLOW_OP_H_

#include "base/status.h"

namespace deepfreeze {

// Once per process is enough; later calls return what the first one came to. kInvalid where there is no TensorFlow, or
// one without that interface.
//
//   DeepfreezeCapture(tensors: T), T: list(type), area: int, group: int. On the CPU, stateful, no outputs.
Status RegisterTensorflowOp();

}  // namespace deepfreeze

#endif  // DEEPFREEZE_GRAPH_TENSORFLOW_OP_H_
