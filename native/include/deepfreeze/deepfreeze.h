/* The engine's public interface. A caller uses these functions alone, and may rely on what this file says of them.
 *
 * What the engine does: it takes shards out of a training process's memory, writes them to node-local storage (the
 * local tier), assembles the shards of all ranks into one file on a shared file system (the external store), and
 * commits that file atomically. docs/format.md describes the files, docs/design.md ("Words") the words.
 *
 * Threads: every function may be called from any thread; calls on one engine may overlap, except df_engine_close, which
 * must be the last. Functions on capture areas (area.h) have rules of their own. No function calls back into
 * the caller. The engine starts its threads in df_engine_open and has joined them all when df_engine_close returns
 * DF_OK.
 *
 * Processes: an engine belongs to the process that opened it. In a child that this process forks, every call on the
 * engine returns DF_INVALID, except df_engine_close, which leaves the parent's engine and its files alone and returns
 * DF_OK. The same holds for a capture area and df_area_close. The child does not have the memory that captures lie in.
 *
 * Errors: functions return a df_code. If it is not DF_OK, df_error() gives the message of the calling thread, valid
 * until that thread's next call into this library. Messages name the file and the system's error. No function aborts,
 * exits, prints, raises signals or throws.
 *
 * Lifetimes: strings and arrays that are passed in are copied before the call returns. The one exception is the memory
 * that df_region.data points to. It belongs to the caller and must stay readable and unchanged until df_engine_poll
 * reports the step as released, or df_engine_close has returned DF_OK. Where this memory is a capture area's own, the
 * engine keeps it alive for as long as it reads it, even if the area is dropped or closed before.
 *
 * Waiting: a function that waits takes a bound in milliseconds. When the bound is reached it returns DF_TIMEOUT, with a
 * message that says what it waited for, and for which rank.
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

/* Grows by one with every incompatible change of this header. */
#define DF_ABI_VERSION 7

/* The result of a call. */
typedef enum df_code {
  DF_OK = 0,
  DF_INVALID = 1,    /* an argument is wrong; nothing was done */
  DF_IO = 2,         /* the operating system refused an operation */
  DF_NO_SPACE = 3,   /* no space left, or quota exceeded */
  DF_TIMEOUT = 4,    /* the bound was reached; nothing was lost */
  DF_CORRUPT = 5,    /* a file's bytes contradict their checksum or the format */
  DF_INCOMPLETE = 6, /* a checkpoint lacks shards of some rank, or rank 0's commit was not seen in time */
  DF_CLOSED = 7,     /* the engine is shutting down */
  DF_DIVERGED = 8,   /* tensors that all ranks should hold alike differ between the ranks */
  DF_TAKEN = 9,      /* another attempt has taken the run; this attempt must end */
  DF_SUPERSEDED = 10 /* the checkpoint was given up for a newer one (df_engine_supersede, df_engine_replace);
                        this is no failure */
} df_code;

/* How far a checkpoint is protected; a higher level implies the lower ones. The number 2 is kept for partner copies.
 * On ranks other than 0 a checkpoint is also external if a newer commit has replaced and removed it already. If the
 * sync that makes a commit's name durable has failed, rank 0 reports a notice: a loss of power may take that
 * checkpoint, nothing else can. */
typedef enum df_level {
  DF_CAPTURED = 0, /* in the training process's memory */
  DF_LOCAL = 1,    /* this rank's shard is on the local tier */
  DF_EXTERNAL = 3  /* assembled, fsynced, committed */
} df_level;

/* What a report with step -1 is: its level. */
typedef enum df_notice {
  DF_WARNS = 0,  /* the user should know */
  DF_INFORMS = 1 /* a line of the engine's log: something takes long, or is tried again */
} df_notice;

typedef struct df_engine df_engine; /* opaque; made by df_engine_open, freed by df_engine_close */

/* A contiguous part of this rank's bytes: nbytes bytes at data belong at file_offset of the assembled file. All regions
 * of a rank together must cover each page of 4096 bytes of that file that they touch wholly, or up to the end of the
 * file: if two ranks wrote to one page of a network file system, bytes of it might be lost. */
typedef struct df_region {
  const void* data;
  uint64_t nbytes;
  uint64_t file_offset;
} df_region;

/* What happens to a checkpoint whose ranks differ in their replica checksums (df_options.hashes). A checkpoint that is
 * refused fails with DF_DIVERGED on rank 0; one that is not refused is committed, and its manifest says how many
 * tensors differ. */
typedef enum df_refusal {
  DF_REFUSE_NONE = 0, /* no checkpoint is refused */
  DF_REFUSE_ALL = 1,  /* each is refused */
  DF_REFUSE_FIRST = 2 /* refused if this engine's first or second comparison finds a difference, and from then on until
                         a comparison finds none; a difference that is found later is not refused */
} df_refusal;

/* Which part takes the checkpoints and makes them durable. */
typedef enum df_backend {
  DF_EMBEDDED = 0 /* this library, in the calling process */
} df_backend;

/* The caller sets struct_size to sizeof(df_options), and all fields up to run_dir. A field that the caller's version of
 * this struct does not have yet gets its default, which stands in brackets; a caller may also leave fields out at the
 * end, by a struct_size that ends before them. Bytes that this library's version does not have must be zero: an option
 * that the library does not know is refused. New fields are added at the end, in multiples of 8 bytes. */
typedef struct df_options {
  uint32_t struct_size;
  uint32_t rank;              /* < world */
  uint32_t world;             /* ranks that write together, >= 1 */
  uint32_t hashes;            /* number of replica checksums (u32 each) at the end of the private bytes: they must be
                                 the same on all ranks; all zero at a step at which the ranks are not compared */
  uint64_t file_size;         /* bytes of the assembled file, 1 to 2^63 - 1 */
  uint8_t run_id[16];         /* a random id, in RUN/run.json */
  uint8_t attempt[16];        /* a random id, of this start of the job */
  uint8_t structure[32];      /* SHA-256 of the structure file */
  const char* run_dir;        /* existing directory on the external store */
  const char* local_dir;      /* existing directory of the local tier, or NULL for none; slots: docs/format.md, LOCAL
                                 [NULL] */
  uint32_t in_flight;         /* checkpoints whose shards may be held in the process's memory at once, >= 1 [2] */
  uint32_t slots;             /* slots of this rank on the local tier: bounds the backlog, >= 1 [2] */
  uint32_t writers;           /* threads that write, >= 1; Copiers in engine/stage.h says how many may copy [8] */
  uint32_t nice;              /* 0 to 19: added to the nice value of the engine's threads [10] */
  uint32_t refuse_diverged;   /* a df_refusal [DF_REFUSE_NONE] */
  uint32_t backend;           /* a df_backend [DF_EMBEDDED] */
  uint64_t chunk_bytes;       /* size of the largest extent, a multiple of 4096, >= 4096 [4 MiB] */
  uint64_t commit_timeout_ms; /* how long a checkpoint may wait for another rank while nothing moves there [600000] */
  const uint32_t* node;       /* the ranks of this rank's node, ascending, with this rank among them: they look at the
                                 store for each other, and one publishes the records of all [NULL] */
  uint64_t node_ranks;        /* how many ranks `node` has; 0: this rank may be alone on its node [0] */
  const char* node_dir;       /* directory in the memory that these ranks share, or NULL for none; it need not exist
                                 [NULL] */
  uint64_t rate;              /* bytes per second that this rank writes to the external store at most, with bursts of
                                 one second; 0: as many as the store takes [0] */
  uint64_t uncommitted;       /* checkpoints that may be captured and neither committed nor failed; the next one waits.
                                 0: as many as in_flight and slots allow [0] */
  uint64_t bounded;           /* not 0: the caller bounds the bytes of the run, on rank 0 alone. Other ranks then write
                                 nothing of a step there before rank 0 has begun the step [0] */
  uint64_t one_memory;        /* not 0: in_flight bounds the captures in buffers, in slots that are memory, and in the
                                 caller's memory together. Memory is then not found ahead for more captures than there
                                 may be beside those that the caller's memory holds [0] */
  uint64_t transfers;         /* checkpoints that are written to the external store at once, at most 64; 0 is 1. With
                                 more than 1 a newer checkpoint may be committed before an older one [0] */
  uint64_t cached;            /* not 0: writes to the external store go through the page cache. 0: past it, where the
                                 file system can do that [0] */
} df_options;

/* The state of one checkpoint; or, with step -1, a notice for the user, which has a message and no checkpoint. Times
 * are in seconds since the submit, -1 while the checkpoint has not got there. */
typedef struct df_report {
  int64_t step;
  int32_t level;     /* the df_level reached so far; of a notice: a df_notice */
  int32_t code;      /* DF_OK, or why it failed; a failed checkpoint never gets further */
  int32_t released;  /* 1: the engine no longer reads the caller's memory */
  int32_t diverged;  /* on rank 0: number of the first replica checksum in which the ranks differ, -1 if they differ in
                        none. At a step at which the ranks are not compared: the result of the last comparison. On
                        other ranks: -1 */
  uint64_t nbytes;   /* bytes of this rank's regions */
  double local_s;    /* when it was whole on the local tier; stays -1 for a checkpoint without a slot */
  double written_s;  /* when this rank's ranges were fsynced on the external store and its record published, or given to
                        the rank of its node that publishes the records of all */
  double external_s; /* when it was committed, as far as this rank has seen */
  char message[512]; /* the failure, the notice, or in which tensors the ranks differ; else empty */
  double copy_s; /* CPU seconds of the copies by which capture areas put this capture into the engine's memory; 0 for
                    a capture that lies in memory of the caller's or of an area's own */
  double cpu_s;  /* CPU seconds of the engine's threads from the end (commit or failure) of the checkpoint that ended
                    before this one, or from df_engine_open, to the end of this one: the sum over all checkpoints
                    is what the threads have used until the last of them. -1 before the end */
  int64_t superseded_by; /* with DF_SUPERSEDED: the newer step for which it was given up; else of no meaning */
} df_report;

/* How far a checkpoint is that is neither committed nor failed. Bytes are this rank's. */
typedef struct df_progress {
  int64_t step;
  int32_t level;           /* the df_level reached so far */
  int32_t published;       /* 1: this rank's part is durable on the external store, and the commit is to come */
  uint64_t nbytes;         /* of the part */
  uint64_t local_bytes;    /* of them on the local tier, with their checksums; 0 without one */
  uint64_t external_bytes; /* of them written to the external store, since the last try began */
  double age_s;            /* seconds since the submit */
  char waits_for[256];     /* "waits for ..."; empty if bytes are being written */
} df_progress;

/* CPU seconds of an engine's threads of one name, as the system shows it: df-commit, df-writer and so on. */
typedef struct df_thread {
  char name[16];
  double cpu_s;
} df_thread;

/* What an engine has done since it was opened. Bytes and calls of failed attempts count too. The external_* fields are
 * about the run's directory, the local_* fields about the local tier; bytes that a capture puts into a slot that is
 * memory are in neither. */
typedef struct df_stats {
  uint32_t struct_size; /* set by the caller: sizeof(df_stats) */
  uint32_t threads;     /* used entries of thread */
  uint64_t waits;       /* submits and captures that were held up, for 0.1 ms or longer */
  uint64_t wait_us;     /* microseconds in all */
  uint64_t looks;       /* how often the engine looked at the store for a commit or for other ranks' parts */
  uint64_t pauses;      /* between such looks, or before another try of a store that fails */
  uint64_t pause_us;
  uint64_t copied_bytes;          /* by captures, into the engine's memory */
  uint64_t copy_us;               /* CPU time of these copies */
  uint64_t external_direct_bytes; /* written past the page cache */
  uint64_t external_cached_bytes; /* written through it */
  uint64_t external_read_bytes;
  uint64_t external_syncs;    /* of files and directories */
  uint64_t external_metadata; /* calls about names, sizes and blocks: open, stat, rename and so on */
  uint64_t external_lists;    /* directories that were listed */
  uint64_t external_names;    /* names in these listings */
  uint64_t local_direct_bytes;
  uint64_t local_cached_bytes;
  uint64_t local_read_bytes;
  uint64_t local_syncs;
  uint64_t local_metadata;
  uint64_t local_lists;
  uint64_t local_names;
  df_thread thread[16]; /* in the order of their names */
} df_stats;

/* The identity that a slot's header has. */
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
/* The DF_ABI_VERSION that the library was built with. */
DF_API uint32_t df_abi_version(void);
/* The calling thread's last error message; "" if there was none. */
DF_API const char* df_error(void);
/* CRC32C of n bytes, continuing from crc (0 to begin). */
DF_API uint32_t df_crc32c(uint32_t crc, const void* data, size_t n);

/* Starts an engine for one rank of one attempt; the caller owns *out and ends it with df_engine_close. Creates nothing
 * on disk yet. DF_INVALID: an option is wrong, or a directory does not exist. */
DF_API int df_engine_open(const df_options* options, df_engine** out);

/* Hands over one captured step: n regions, sorted by file_offset, not overlapping, in whole pages (see df_region), and
 * this rank's private bytes and named values. The values are a section as in docs/format.md, "Named values", of any
 * size at each step; the engine puts it into the rank's record and knows one name, compared_part. Steps must grow from
 * call to call. Waits, at most timeout_ms, while in_flight checkpoints are held in memory; after DF_TIMEOUT the engine
 * has taken nothing. Regions in memory that df_engine_reserve or a capture area has reserved wait only until no older
 * checkpoint needs that memory. Returns as soon as the checkpoint is taken; the work goes on in the background.
 * DF_INVALID: the regions are wrong; or the private bytes are too few for `hashes`; or the values are no section; or
 * the record would have more than 256 MiB (24 bytes for each extent, of which a region has one for each chunk_bytes,
 * the private bytes and the values).
 */
DF_API int df_engine_submit(df_engine* engine, int64_t step, const df_region* regions, size_t n,
                            const void* private_data, uint64_t private_bytes, const void* values, uint64_t values_bytes,
                            uint64_t timeout_ms);

/* To be called in place of df_engine_submit by a rank that has no capture of `step` to hand over, because its caller
 * has failed: the other ranks, which may have handed over theirs, learn of it and need not wait. The step fails on all
 * ranks, here with DF_INCOMPLETE and this message. Steps must grow as in df_engine_submit. Returns at once; the other
 * ranks are told in the background. */
DF_API int df_engine_fail(df_engine* engine, int64_t step, const char* message);

/* Says, once per engine, what every capture into the engine's own memory consists of: n regions as in df_engine_submit
 * (data is not looked at), private_bytes private bytes, and side_bytes of room for bytes that belong to no region. Each
 * capture lies in a buffer of its own, and all buffers have the same layout: on return places[i] is the place of region
 * i in a buffer, in bytes from its beginning, and places[n] the place of the side bytes; places must have room for
 * n + 1 numbers. There are in_flight buffers; on a local tier that is memory the buffers are its slots. DF_INVALID: as
 * for df_engine_submit, or a second call, or a buffer of more than 2^63 - 1 bytes. */
DF_API int df_engine_plan(df_engine* engine, const df_region* regions, size_t n, uint64_t private_bytes,
                          uint64_t side_bytes, uint64_t* places);

/* *nbytes: the bytes of one buffer of an engine that is given this plan and has this chunk_bytes. DF_INVALID: as for
 * df_engine_plan. */
DF_API int df_capture_size(const df_region* regions, size_t n, uint64_t private_bytes, uint64_t side_bytes,
                           uint64_t chunk_bytes, uint64_t* nbytes);

/* Waits, at most timeout_ms, until there is memory for the next capture, and reserves it. One memory is reserved at a
 * time: a call while there is one returns DF_OK at once. A buffer is also reserved while an older checkpoint is being
 * written from it, as soon as that part of it is free that a capture needs first; the capture then waits for each other
 * part. After DF_TIMEOUT nothing is reserved. A caller need not call this: the capture itself reserves memory if there
 * is none. DF_INVALID: df_engine_plan was not called. */
DF_API int df_engine_reserve(df_engine* engine, uint64_t timeout_ms);

/* *n: for how many more captures there is memory now, without waiting. Memory that is reserved already is not counted.
 * Never blocks. */
DF_API int df_engine_room(df_engine* engine, uint32_t* n);

/* Waits, at most timeout_ms, until the step has reached the level. For a checkpoint that has failed, or fails
 * meanwhile, returns its code and message at once. Without a local tier (or once it is given up) a checkpoint reaches
 * DF_LOCAL when this rank's part is on the external store, before the commit. Of the steps that df_engine_poll has
 * forgotten, the last 1024 are still known here. DF_INVALID: the step is not known. */
DF_API int df_engine_wait(df_engine* engine, int64_t step, int level, uint64_t timeout_ms);

/* Copies reports to out, at most capacity of them, and their number to *n: the notices first, then one for each
 * checkpoint that has changed since the last poll, in the order of their steps, then the lines of the engine's log, of
 * which the newest 256 are kept. Never blocks. A checkpoint that is
 * released, and external or failed, is reported one last time and then forgotten. */
DF_API int df_engine_poll(df_engine* engine, df_report* out, size_t capacity, size_t* n);

/* Copies how far the unfinished checkpoints are to out, at most capacity of them, the oldest first, and their number to
 * *n. Changes nothing, and never blocks. */
DF_API int df_engine_progress(df_engine* engine, df_progress* out, size_t capacity, size_t* n);

/* Has the committed checkpoints of n steps removed, in the background and apart from commits. The caller decides which
 * ones: the engine removes no committed checkpoint of its own accord, except one of the same step that a commit
 * replaces. Each is renamed to trash before anything in it is deleted, and none is if another attempt has taken the
 * run. A step that has no committed checkpoint is passed over; a removal that fails is reported as a notice. Returns at
 * once. With n = 0 and options.bounded it removes what failed steps have left of which all ranks know, and what earlier
 * removals have left; otherwise that goes after the next commit. DF_INVALID: not rank 0's engine. */
DF_API int df_engine_remove(df_engine* engine, const int64_t* steps, size_t n);

/* Gives up the checkpoint of `step`, because the newer one of step `by` is committed and the caller does not want the
 * older one any more. This frees its memory, its slot and what there is of it on the external store. It ends with
 * DF_SUPERSEDED on all ranks, which learn of it from the store, unless it is committed, or has failed, by then. A rank
 * that is late may find it gone, and take it for committed and removed. Returns at once. A step that is over, held or
 * unknown is passed over. DF_INVALID: not rank 0's engine, or `by` is not newer. */
DF_API int df_engine_supersede(df_engine* engine, int64_t step, int64_t by);

/* Has this rank not begin to write `step`, nor newer steps, to the external store until the next call for another step
 * (-1: for none), or df_engine_drain. *held: 1 if it is held; 0 if it is too late for that, or the step is the oldest
 * one that is not over, which is never held. So the ranks can agree to give up a step of which nothing is on the store
 * yet. Never blocks. */
DF_API int df_engine_hold(df_engine* engine, int64_t step, int32_t* held);

/* Gives up the checkpoint of `step`, which every rank holds, for the newer one of step `by`, which is to come. Every
 * rank calls this; the store hears nothing of it. The step ends with DF_SUPERSEDED at once. Never blocks. DF_INVALID:
 * this rank does not hold the step, or `by` is not newer. */
DF_API int df_engine_replace(df_engine* engine, int64_t step, int64_t by);

/* Sets how many of the writers, transfers and uncommitted checkpoints that the engine was opened with are used from now
 * on. writers: 1 to options.writers; beside them there is one thread for the local tier, as always. transfers: 1 to
 * options.transfers. uncommitted: 1 to options.uncommitted, any number if that is 0; 0: as many as the engine was
 * opened with. What has begun goes on: a lower number holds back only what begins later, a higher one lets what waits
 * begin at once. The store does not depend on these numbers, so they may differ between the ranks. Never blocks.
 * DF_INVALID: the engine was not opened with as many; no number is changed. */
DF_API int df_engine_tune(df_engine* engine, uint64_t writers, uint64_t transfers, uint64_t uncommitted);

/* Waits, at most timeout_ms, until every submitted checkpoint is external or failed, and all that df_engine_remove was
 * told of is removed. */
DF_API int df_engine_drain(df_engine* engine, uint64_t timeout_ms);

/* *ms: for how many milliseconds nothing has moved: no bytes of this rank's checkpoints, and no sign of another rank
 * that it waits for. A caller that waits in slices, for as long as something moves, asks this between them. Never
 * blocks. */
DF_API int df_engine_idle(df_engine* engine, uint64_t* ms);

/* What the engine has done so far. Never blocks for longer than a copy of the numbers takes. Fills the first
 * struct_size bytes of *out, so that a caller of an older or newer version gets what both know. DF_INVALID: struct_size
 * is less than 8. */
DF_API int df_engine_stats(df_engine* engine, df_stats* out);

/* Stops the engine, joins its threads and frees it. Work under way stops at the next chunk; removals are finished, or
 * left to the next attempt if they take longer than half of the bound below.
 * Whole slots of checkpoints that are not committed stay, for df_slot_transfer at the next start; the other slots are
 * deleted. NULL is allowed. DF_TIMEOUT: a call to the system has not returned for 30 s (or commit_timeout_ms, if that
 * is less), because the store hangs. The handle must not be used any more, but the threads are left behind, and the
 * caller's memory that they read must stay as it is until the process ends. */
DF_API int df_engine_close(df_engine* engine);

/* For the next start of a job, when no engine of the dead attempt runs any more: */

/* Reads and checks a slot's header, table and private bytes. DF_CORRUPT: the slot is not whole, so there is nothing to
 * rescue. */
DF_API int df_slot_inspect(const char* path, df_slot_info* out);

/* Copies the shard of a whole slot to its checkpoint's partial directory in run_dir, checks every checksum on the way,
 * and publishes the rank's record. May be repeated. DF_INVALID: a symbolic link is in the partial directory's place. */
DF_API int df_slot_transfer(const char* path, const char* run_dir);

/* Commits run_dir/step-N.partial-ATTEMPT of a dead attempt if the records of all its ranks are there and the model file
 * agrees with their checksums. May be repeated; returns DF_OK if the step is committed already. DF_INCOMPLETE: records
 * are missing; the message names their ranks. DF_INVALID: another attempt has committed this step, and its checkpoint
 * stays; or a symbolic link is in the partial directory's place. DF_DIVERGED: the ranks differ at this step, or did
 * when the attempt last compared them before, so the attempt may have refused the checkpoint. An I/O error may also
 * come from the last sync, when the step has its final name: the next call then finds it committed. */
DF_API int df_commit(const char* run_dir, int64_t step, const uint8_t attempt[16]);

/* Measures, before an engine is opened, how fast run_dir takes bytes: writes at most `bytes` bytes to a file there of
 * which nothing is left, past the page cache and through it in turn, with so many threads, in chunks of chunk_bytes (a
 * multiple of 4096; bytes is at least six of them). Begins no chunk when budget_ms are over. *direct, *cached: bytes
 * per second, with the time to make them durable; *direct is 0 if the file system takes no direct writes, or is memory.
 */
DF_API int df_probe(const char* run_dir, uint32_t writers, uint64_t bytes, uint64_t chunk_bytes, uint64_t budget_ms,
                    double* direct, double* cached);

/* *step: of the newest committed checkpoint in run_dir, -1 if there is none. Reads the manifests of the newest ones
 * alone, and takes no lock: a job may write to the run meanwhile. */
DF_API int df_newest(const char* run_dir, int64_t* step);

#ifdef __cplusplus
}
#endif

#endif /* DEEPFREEZE_DEEPFREEZE_H_ */
