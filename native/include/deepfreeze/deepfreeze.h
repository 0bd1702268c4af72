/* The engine's public interface: everything a caller may use, and all it may rely on.
 *
 * What it does: takes shards out of a training process's memory, writes them to node-local storage, assembles the
 * shards of all ranks into one file on a shared file system, and commits that file atomically. docs/format.md holds the
 * bytes.
 *
 * Threads: every function may be called from any thread; calls on one engine may overlap, except df_engine_close, which
 * must be the last. No function calls back into the caller. The engine starts its threads in df_engine_open and has
 * joined them all when df_engine_close returns.
 *
 * Processes: an engine belongs to the process that opened it. In a child forked from that one every call on it is
 * DF_INVALID, except df_engine_close, which leaves the parent's engine and its files alone and returns DF_OK. So it is
 * with a capture area and df_area_close. The child has none of the memory that captures lie in.
 *
 * Errors: functions return a df_code. Unless it is DF_OK, df_error() gives the calling thread's message, valid until
 * that thread's next call into this library. Messages name the file and the system's error. Nothing aborts, exits,
 * prints, raises signals or throws across this boundary.
 *
 * Lifetimes: strings and arrays passed in are copied before a call returns, with one exception, the memory that
 * df_region.data points to: it belongs to the caller and must stay readable and unchanged until df_engine_poll reports
 * the step as released (or df_engine_close has returned DF_OK). A capture area's own memory that regions point to stays
 * by itself for as long as the engine reads it, also where the area is dropped or closed before.
 *
 * Waiting: every wait takes a bound in milliseconds and ends with DF_TIMEOUT and a message that says what, and which
 * rank, it waited for.
 */
#ifndef DEEPFREEZE_DEEPFREEZE_H_
#define DEEPFREEZE_DEEPFREEZE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DF_API __attribute__((visibility("default")))
#else
#define DF_API
#endif

/* Raised by one with every incompatible change of this header. */
#define DF_ABI_VERSION 1

/* What a call came to. */
typedef enum df_code {
  DF_OK = 0,
  DF_INVALID = 1,    /* an argument is wrong; nothing was done */
  DF_IO = 2,         /* the operating system refused an operation */
  DF_NO_SPACE = 3,   /* no space left, or quota exceeded */
  DF_TIMEOUT = 4,    /* the bound was reached; nothing was lost */
  DF_CORRUPT = 5,    /* a file's bytes contradict their checksum or the format */
  DF_INCOMPLETE = 6, /* a checkpoint lacks shards of some rank, or rank 0's commit was not seen in time */
  DF_CLOSED = 7,     /* the engine is shutting down */
  DF_DIVERGED = 8,   /* ranks that should hold the same hold different values */
  DF_TAKEN = 9       /* another attempt has taken the run; this one must end */
} df_code;

/* How far a checkpoint is protected; a higher level implies the lower ones. 2 is kept for partner copies. On ranks
 * other than 0, external is also a checkpoint that a newer commit has replaced and removed. Where the sync that makes a
 * commit's name durable failed, rank 0 has a notice: only a loss of power may take that checkpoint. */
typedef enum df_level {
  DF_CAPTURED = 0, /* in the training process's memory */
  DF_LOCAL = 1,    /* this rank's shard is on the local tier */
  DF_EXTERNAL = 3  /* assembled, fsynced, committed */
} df_level;

typedef struct df_engine df_engine; /* opaque; made by df_engine_open, freed by df_engine_close */

/* A contiguous piece of this rank's shard: nbytes at data belong at file_offset of the assembled file. Every page of
 * 4096 bytes of that file which the pieces of a rank touch, they hold whole, or to the end of the file: two ranks that
 * wrote to one page of a network file system might lose bytes of it. */
typedef struct df_region {
  const void* data;
  uint64_t nbytes;
  uint64_t file_offset;
} df_region;

/* Which checkpoints fail whose ranks differ in the `hashes` of df_options. Of the others the manifest says so. */
typedef enum df_refusal {
  DF_REFUSE_NONE = 0,
  DF_REFUSE_ALL = 1,
  DF_REFUSE_FIRST = 2 /* if the first two comparisons of this engine found it, until one finds none */
} df_refusal;

/* All fields must be set, struct_size to sizeof(df_options). */
typedef struct df_options {
  uint32_t struct_size;
  uint32_t rank;              /* < world */
  uint32_t world;             /* ranks that write together, >= 1 */
  uint32_t in_flight;         /* checkpoints whose shards may be held in the caller's memory, >= 1 */
  uint32_t slots;             /* slots on the local tier: the bound of the backlog, >= 1 */
  uint32_t writers;           /* threads that write, >= 1; see Copiers in engine/stage.h */
  uint32_t keep;              /* committed checkpoints to keep (rank 0), >= 1; and the newest not `diverged` */
  uint32_t hashes;            /* u32 checksums at the end of the private bytes that must be the same on all ranks */
  uint32_t refuse_diverged;   /* df_refusal */
  uint32_t nice;              /* 0 to 19: how far the engine's threads step back behind the thread that opens it */
  uint64_t chunk_bytes;       /* largest extent, multiple of 4096, >= 4096 */
  uint64_t file_size;         /* size of the assembled file, 1 to 2^63 - 1 */
  uint64_t commit_timeout_ms; /* how long a checkpoint may wait for another rank that does not move */
  uint8_t run_id[16];
  uint8_t attempt[16];
  uint8_t structure[32];
  const char* run_dir;   /* existing directory on the external store */
  const char* local_dir; /* existing directory of the local tier, or NULL for none; slots: docs/format.md, LOCAL */
} df_options;

/* One checkpoint's state, or, with step -1, a notice for the user (message set, everything else 0). Times are seconds
 * since the submit, -1 where not reached. */
typedef struct df_report {
  int64_t step;
  int32_t level;     /* df_level reached so far */
  int32_t code;      /* DF_OK, or why it failed; a failed checkpoint never gets further */
  int32_t released;  /* 1: the caller's memory is no longer read */
  int32_t diverged;  /* number of the first checksum in which the ranks differ, -1 if in none; known to rank 0. Of a
                        step without checksums (all zero): what the last step that had some came to */
  uint64_t nbytes;   /* bytes of this rank's regions */
  double local_s;    /* on the local tier; stays -1 for a checkpoint that went past it */
  double written_s;  /* this rank's ranges on the external store, fsynced, record published */
  double external_s; /* committed */
  char message[512]; /* of the failure or notice, or in what the ranks differ; empty otherwise */
} df_report;

/* What a slot says of itself. */
typedef struct df_slot_info {
  int64_t step;
  uint32_t rank;
  uint32_t world;
  uint64_t file_size;
  uint64_t nbytes; /* sum of its extents */
  uint8_t run_id[16];
  uint8_t attempt[16];
  uint8_t structure[32];
} df_slot_info;

/* The library's version ("0.1.0"), static. */
DF_API const char* df_version(void);
/* DF_ABI_VERSION the library was built with. */
DF_API uint32_t df_abi_version(void);
/* The calling thread's last error message; "" if there was none. */
DF_API const char* df_error(void);
/* CRC32C of n bytes, continuing from crc (0 to begin). */
DF_API uint32_t df_crc32c(uint32_t crc, const void* data, size_t n);

/* Starts an engine for one rank of one attempt. Creates nothing on disk yet. */
DF_API int df_engine_open(const df_options* options, df_engine** out);

/* Hands over one captured step: n regions sorted by file_offset, not overlapping, in whole pages (see df_region), and
 * this rank's private bytes. Steps must grow from call to call. Blocks, at most timeout_ms, while in_flight checkpoints
 * are held in memory; on DF_TIMEOUT nothing was taken. Otherwise returns at once; the work goes on in the background.
 * DF_INVALID: regions that are wrong, or, with the private bytes, more than a record of 256 MiB can hold (24 bytes for
 * each chunk_bytes of a region); private bytes that have no room for `hashes`. */
DF_API int df_engine_submit(df_engine* engine, int64_t step, const df_region* regions, size_t n,
                            const void* private_data, uint64_t private_bytes, uint64_t timeout_ms);

/* Fixes, once, what every capture into the engine's own memory consists of: n regions as in df_engine_submit (data is
 * not looked at), private bytes, and side_bytes of room for bytes that belong to no region. places[i] is where region i
 * lies in such a memory, places[n] where the side bytes begin. The memory is as large as the regions, in_flight times,
 * or it is the slots of a local tier that is memory. DF_INVALID as df_engine_submit, and for more than 2^63 - 1 bytes.
 */
DF_API int df_engine_plan(df_engine* engine, const df_region* regions, size_t n, uint64_t private_bytes,
                          uint64_t side_bytes, uint64_t* places);

/* Blocks, at most timeout_ms, until there is memory for the next capture, and keeps it. On DF_TIMEOUT nothing is kept;
 * a capture makes its own call. */
DF_API int df_engine_reserve(df_engine* engine, uint64_t timeout_ms);

/* How many more captures there would be memory for now, without waiting; what is reserved is not counted. */
DF_API int df_engine_room(df_engine* engine, uint32_t* n);

/* Blocks until the step has reached the level. A failed checkpoint returns its own code and message at once. Without a
 * local tier (or once it is full) DF_LOCAL means: on the external store, not yet committed. Answers for the last 1024
 * forgotten steps too. */
DF_API int df_engine_wait(df_engine* engine, int64_t step, int level, uint64_t timeout_ms);

/* Copies up to capacity reports of what changed since the last poll to out, oldest first, and their number to *n. Never
 * blocks. A checkpoint that is released and external or failed is reported one last time and then forgotten. */
DF_API int df_engine_poll(df_engine* engine, df_report* out, size_t capacity, size_t* n);

/* Blocks until every submitted checkpoint is external or failed. DF_TIMEOUT names what, and whom, it still waits for.
 */
DF_API int df_engine_drain(df_engine* engine, uint64_t timeout_ms);

/* Since how many milliseconds nothing has moved: no bytes of this rank's checkpoints, and no sign of another rank that
 * it waits for. For a caller who waits in slices, and for as long as something moves. Never blocks. */
DF_API int df_engine_idle(df_engine* engine, uint64_t* ms);

/* Stops the engine, joins its threads and frees it. Work under way stops at the next chunk; slots whose checkpoint is
 * not committed stay for df_slot_transfer at the next start, the others are deleted. NULL is allowed. DF_TIMEOUT: a
 * call to the system did not return for 30 s (or commit_timeout_ms, if that is less), because the store hangs. The
 * handle is gone, but the threads are left behind, and the caller's memory that they read must stay as it is for ever.
 */
DF_API int df_engine_close(df_engine* engine);

/* A capture area: where the ops of a training's graph put what they capture. The ops carry its number. */
typedef struct df_piece {
  uint64_t source; /* number of the group's tensor */
  uint64_t start;  /* of the piece, in bytes of the flattened tensor */
  uint64_t nbytes;
  uint64_t place; /* in the memory of a capture */
} df_piece;

/* Makes an area. Until an engine is attached it has memory of its own. */
DF_API int df_area_open(uint64_t* area);
/* Sets the pieces of group number `group`, in place of those it had. DF_INVALID: a place that no memory has. Whether
 * the memory of a capture has it is known, and checked, when it is captured. */
DF_API int df_area_group(uint64_t area, uint64_t group, const df_piece* pieces, size_t n);
/* From the next capture on, memory is the engine's (NULL: the area's own); a capture waits for it until nothing has
 * moved for timeout_ms. */
DF_API int df_area_attach(uint64_t area, df_engine* engine, uint64_t timeout_ms);
/* Copies one group's pieces, as the op DeepfreezeCapture does: data[i] and nbytes[i] are its tensor number i. Threads:
 * one call per group at a time. DF_INVALID, and nothing is copied, for a piece that is outside of its tensor, or of the
 * memory as the engine planned it. */
DF_API int df_area_capture(uint64_t area, uint64_t group, const void* const* data, const uint64_t* nbytes, size_t n);
/* Ends the capture of a step: *base is where it lies, *own 1 if in the area's memory, which stays as it is until
 * df_area_drop. Otherwise the memory is the engine's, and the next df_engine_submit must be of regions in it. An error
 * says why there is no capture: DF_TIMEOUT when there was no memory for it. */
DF_API int df_area_collect(uint64_t area, void** base, int32_t* own);
/* Frees the area's own memory. */
DF_API int df_area_drop(uint64_t area);
/* Forgets the area: ops that still carry its number fail. */
DF_API int df_area_close(uint64_t area);

/* Registers the op DeepfreezeCapture with the TensorFlow 2 that this process has loaded, through its C interface:
 * inputs `tensors` of types T (a list), attributes area and group (int), no outputs. DF_INVALID, with the reason, where
 * that can't be. */
DF_API int df_tensorflow_register(void);

/* Reads a slot's header. DF_CORRUPT: not a whole slot (nothing to rescue). */
DF_API int df_slot_inspect(const char* path, df_slot_info* out);

/* Copies a whole slot's shard to its checkpoint's partial directory in run_dir, checking every checksum on the way, and
 * publishes the rank's record. May be repeated. DF_INVALID: a symbolic link lies in the partial directory's place. */
DF_API int df_slot_transfer(const char* path, const char* run_dir);

/* Commits RUN/step-N.partial-ATTEMPT of a dead attempt if all its ranks' records are there and the model file agrees
 * with their checksums. DF_INCOMPLETE names the ranks that are missing; DF_INVALID: another attempt has committed this
 * step, which stays, or a symbolic link lies in the partial directory's place. DF_DIVERGED: its ranks differ, or did
 * when the attempt last compared them: it may have been refused for that. May be repeated; DF_OK if it is committed
 * already.
 */
DF_API int df_commit(const char* run_dir, int64_t step, const uint8_t attempt[16]);

#ifdef __cplusplus
}
#endif

#endif /* DEEPFREEZE_DEEPFREEZE_H_ */
