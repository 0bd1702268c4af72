/* Capture areas: how the ops of a training's graph put captures into an engine's memory, or into memory of their own.
 * Part of the public interface: what deepfreeze.h says of errors, processes and versions holds here too.
 */
#ifndef DEEPFREEZE_AREA_H_
#define DEEPFREEZE_AREA_H_

#include "deepfreeze/deepfreeze.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The ops of a training's graph copy tensors into a capture area: a buffer that is filled group by group while a step
 * runs. A group is a list of tensors that one op captures. The graph knows the area by its number, so that a graph that
 * outlives its area meets an error and no freed memory.
 *
 * A group may be captured late. The op DeepfreezeCapture then holds the group's tensors, to which TensorFlow does not
 * write while they are held, and the op DeepfreezeCaptureHeld, at the beginning of the next step, copies and releases
 * them. So the copy runs beside that step, and the bytes are those of the step before.
 *
 * Threads: df_area_capture may be called from several threads at once, for different groups, and so may df_area_mark.
 * All other calls on an area
 * must be made between two executions of the graph, while no capture runs. */
typedef struct df_piece {
  uint64_t source; /* number of the tensor within its group */
  uint64_t start;  /* first byte of the piece in the flattened tensor */
  uint64_t nbytes;
  uint64_t place; /* first byte of the piece in the buffer */
} df_piece;

/* What a mark has noted when its op ran. */
typedef struct df_mark {
  uint64_t at_us;          /* when that was, by a clock that never jumps; 0: it has not run */
  uint64_t cpu_us;         /* CPU time that all threads of the process had taken */
  uint64_t external_bytes; /* that the attached engine had written to the external store; 0 without an engine */
  uint64_t local_bytes;    /* and to the local tier */
  uint64_t external_us;    /* for how long it had been writing checkpoints to the external store */
  uint64_t local_us;       /* and to the local tier */
} df_mark;

/* Makes an area; the caller ends it with df_area_close. Until an engine is attached, captures lie in memory of the
 * area's own. */
DF_API int df_area_open(uint64_t* area);
/* Sets the pieces of group number `group`, in place of those it had. DF_INVALID: a piece ends beyond 2^63 - 1 bytes of
 * a buffer. Whether it fits into the buffer that a capture gets is checked by the capture. */
DF_API int df_area_group(uint64_t area, uint64_t group, const df_piece* pieces, size_t n);
/* From the next capture on, captures lie in the engine's memory (NULL: in the area's own). A capture waits for memory
 * as long as something moves, and timeout_ms longer. The area does not keep the engine alive: after df_engine_close
 * captures fail. */
DF_API int df_area_attach(uint64_t area, df_engine* engine, uint64_t timeout_ms);
/* From the next capture on the group is captured late (1), or in its own step (0), as at first. */
DF_API int df_area_late(uint64_t area, uint64_t group, int32_t late);
/* *groups: of how many groups tensors are held. */
DF_API int df_area_held(uint64_t area, uint64_t* groups);
/* What is known of a group's last capture. *updated: at which part of the step its op ran, 0 at the step's beginning
 * (the op DeepfreezeStepBegins) and 1 when the last op of the capture ran; -1: unknown. *apart: 1 if more than 1 MiB of
 * the tensors that were held had memory of their own when they were copied, because reading the variable copies it, or
 * because the variable was written to meanwhile: capturing this group late costs memory and a second copy. */
DF_API int df_area_note(uint64_t area, uint64_t group, double* updated, int32_t* apart);
/* Copies one group's pieces, as the op DeepfreezeCapture does if the group is not captured late: data[i] and nbytes[i]
 * are tensor number i of the group. The first call of a step reserves the buffer. If there is no memory for it, the
 * call copies nothing and returns DF_OK, so that training goes on; df_area_collect then says why. DF_INVALID, and
 * nothing is copied: a piece lies outside of its tensor, or of the buffer. */
DF_API int df_area_capture(uint64_t area, uint64_t group, const void* const* data, const uint64_t* nbytes, size_t n);
/* Ends the capture of a step: copies what is still held; *base is the capture's buffer. If *own is 1 the buffer is the
 * area's own memory, and keeps what was captured until the next capture or df_area_drop. If *own is 0 it is the
 * engine's, and the next df_engine_submit must be of regions in it. An error says why there is no capture: DF_TIMEOUT
 * if there was no memory for it in time, DF_INVALID if nothing was captured. */
DF_API int df_area_collect(uint64_t area, void** base, int32_t* own);
/* Forgets a capture that will not be collected, and releases the tensors that are held. */
DF_API int df_area_discard(uint64_t area);
/* Frees the area's own memory, as soon as no checkpoint is read from it. */
DF_API int df_area_drop(uint64_t area);
/* Marks number 0 to n - 1 note from now on when the op DeepfreezeMark runs in a step; n = 0: none, as at first.
 * DF_INVALID: n is more than 4096. */
DF_API int df_area_marks(uint64_t area, uint64_t n);
/* Lets a mark note anew, as the op DeepfreezeMark does. Does nothing without such a mark. Thread-safe. */
DF_API int df_area_mark(uint64_t area, uint64_t number);
/* Copies what the area's n marks have noted since the last call, and forgets it. DF_INVALID: the area has not n marks.
 */
DF_API int df_area_marked(uint64_t area, df_mark* marks, size_t n);
/* Ends the area: ops that still have its number fail. */
DF_API int df_area_close(uint64_t area);

/* Registers the ops DeepfreezeCapture (input `tensors` of types T, a list; attributes `area` and `group`, int),
 * DeepfreezeCaptureHeld (`area`, `group`), DeepfreezeStepBegins (`area`) and DeepfreezeMark (`area`, `number`), none of
 * which has outputs, with the TensorFlow 2 that this process has loaded, through TensorFlow's C interface. Once per
 * process is enough; later calls return the first one's result. DF_INVALID, with the reason: this process has no
 * TensorFlow, or one without that interface. */
DF_API int df_tensorflow_register(void);

#ifdef __cplusplus
}
#endif

#endif /* DEEPFREEZE_AREA_H_ */
