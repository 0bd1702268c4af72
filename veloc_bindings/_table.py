"""Every constant, struct and function of the C interface: the headers in ``native/include/deepfreeze``, which explain them.

A test compares this table with the headers: a change of one must be made in the other too.
"""

from __future__ import annotations

import ctypes as c
from typing import Any

ABI_VERSION = 7

# df_code
OK, INVALID, IO, NO_SPACE, TIMEOUT, CORRUPT, INCOMPLETE, CLOSED, DIVERGED, TAKEN, SUPERSEDED = range(11)
# df_level
CAPTURED, LOCAL, EXTERNAL = 0, 1, 3
# df_refusal
REFUSE_NONE, REFUSE_ALL, REFUSE_FIRST = range(3)
# df_backend
EMBEDDED = 0
# df_notice
WARNS, INFORMS = range(2)

CONSTANTS = {
    "DF_ABI_VERSION": ABI_VERSION,
    "DF_OK": OK,
    "DF_INVALID": INVALID,
    "DF_IO": IO,
    "DF_NO_SPACE": NO_SPACE,
    "DF_TIMEOUT": TIMEOUT,
    "DF_CORRUPT": CORRUPT,
    "DF_INCOMPLETE": INCOMPLETE,
    "DF_CLOSED": CLOSED,
    "DF_DIVERGED": DIVERGED,
    "DF_TAKEN": TAKEN,
    "DF_SUPERSEDED": SUPERSEDED,
    "DF_CAPTURED": CAPTURED,
    "DF_LOCAL": LOCAL,
    "DF_EXTERNAL": EXTERNAL,
    "DF_WARNS": WARNS,
    "DF_INFORMS": INFORMS,
    "DF_REFUSE_NONE": REFUSE_NONE,
    "DF_REFUSE_ALL": REFUSE_ALL,
    "DF_REFUSE_FIRST": REFUSE_FIRST,
    "DF_EMBEDDED": EMBEDDED,
}


class Region(c.Structure):
    _fields_ = [("data", c.c_void_p), ("nbytes", c.c_uint64), ("file_offset", c.c_uint64)]


class COptions(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32),
        ("rank", c.c_uint32),
        ("world", c.c_uint32),
        ("hashes", c.c_uint32),
        ("file_size", c.c_uint64),
        ("run_id", c.c_uint8 * 16),
        ("attempt", c.c_uint8 * 16),
        ("structure", c.c_uint8 * 32),
        ("run_dir", c.c_char_p),
        ("local_dir", c.c_char_p),
        ("in_flight", c.c_uint32),
        ("slots", c.c_uint32),
        ("writers", c.c_uint32),
        ("nice", c.c_uint32),
        ("refuse_diverged", c.c_uint32),
        ("backend", c.c_uint32),
        ("chunk_bytes", c.c_uint64),
        ("commit_timeout_ms", c.c_uint64),
        ("node", c.POINTER(c.c_uint32)),
        ("node_ranks", c.c_uint64),
        ("node_dir", c.c_char_p),
        ("rate", c.c_uint64),
        ("uncommitted", c.c_uint64),
        ("bounded", c.c_uint64),
        ("one_memory", c.c_uint64),
        ("transfers", c.c_uint64),
        ("cached", c.c_uint64),
    ]


class CReport(c.Structure):
    _fields_ = [
        ("step", c.c_int64),
        ("level", c.c_int32),
        ("code", c.c_int32),
        ("released", c.c_int32),
        ("diverged", c.c_int32),
        ("nbytes", c.c_uint64),
        ("local_s", c.c_double),
        ("written_s", c.c_double),
        ("external_s", c.c_double),
        ("message", c.c_char * 512),
        ("copy_s", c.c_double),
        ("cpu_s", c.c_double),
        ("superseded_by", c.c_int64),
    ]


class CProgress(c.Structure):
    _fields_ = [
        ("step", c.c_int64),
        ("level", c.c_int32),
        ("published", c.c_int32),
        ("nbytes", c.c_uint64),
        ("local_bytes", c.c_uint64),
        ("external_bytes", c.c_uint64),
        ("age_s", c.c_double),
        ("waits_for", c.c_char * 256),
    ]


class CSlotInfo(c.Structure):
    _fields_ = [
        ("step", c.c_int64),
        ("rank", c.c_uint32),
        ("world", c.c_uint32),
        ("file_size", c.c_uint64),
        ("nbytes", c.c_uint64),
        ("run_id", c.c_uint8 * 16),
        ("attempt", c.c_uint8 * 16),
        ("structure", c.c_uint8 * 32),
    ]


class CPiece(c.Structure):
    _fields_ = [("source", c.c_uint64), ("start", c.c_uint64), ("nbytes", c.c_uint64), ("place", c.c_uint64)]


class CMark(c.Structure):
    _fields_ = [
        ("at_us", c.c_uint64),
        ("cpu_us", c.c_uint64),
        ("external_bytes", c.c_uint64),
        ("local_bytes", c.c_uint64),
        ("external_us", c.c_uint64),
        ("local_us", c.c_uint64),
    ]


class CThread(c.Structure):
    _fields_ = [("name", c.c_char * 16), ("cpu_s", c.c_double)]


class CStats(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32),
        ("threads", c.c_uint32),
        ("waits", c.c_uint64),
        ("wait_us", c.c_uint64),
        ("looks", c.c_uint64),
        ("pauses", c.c_uint64),
        ("pause_us", c.c_uint64),
        ("copied_bytes", c.c_uint64),
        ("copy_us", c.c_uint64),
        ("external_direct_bytes", c.c_uint64),
        ("external_cached_bytes", c.c_uint64),
        ("external_read_bytes", c.c_uint64),
        ("external_syncs", c.c_uint64),
        ("external_metadata", c.c_uint64),
        ("external_lists", c.c_uint64),
        ("external_names", c.c_uint64),
        ("local_direct_bytes", c.c_uint64),
        ("local_cached_bytes", c.c_uint64),
        ("local_read_bytes", c.c_uint64),
        ("local_syncs", c.c_uint64),
        ("local_metadata", c.c_uint64),
        ("local_lists", c.c_uint64),
        ("local_names", c.c_uint64),
        ("thread", CThread * 16),
    ]


STRUCTS = {
    "df_region": Region,
    "df_options": COptions,
    "df_report": CReport,
    "df_progress": CProgress,
    "df_thread": CThread,
    "df_stats": CStats,
    "df_slot_info": CSlotInfo,
    "df_piece": CPiece,
    "df_mark": CMark,
}

_engine = c.c_void_p  # df_engine*

# name: (type of the result, types of the arguments)
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "df_version": (c.c_char_p, []),
    "df_abi_version": (c.c_uint32, []),
    "df_error": (c.c_char_p, []),
    "df_crc32c": (c.c_uint32, [c.c_uint32, c.c_void_p, c.c_size_t]),
    "df_engine_open": (c.c_int, [c.POINTER(COptions), c.POINTER(_engine)]),
    "df_engine_submit": (
        c.c_int,
        [_engine, c.c_int64, c.POINTER(Region), c.c_size_t, c.c_void_p, c.c_uint64, c.c_void_p, c.c_uint64, c.c_uint64],
    ),
    "df_engine_plan": (
        c.c_int,
        [_engine, c.POINTER(Region), c.c_size_t, c.c_uint64, c.c_uint64, c.POINTER(c.c_uint64)],
    ),
    "df_capture_size": (
        c.c_int,
        [c.POINTER(Region), c.c_size_t, c.c_uint64, c.c_uint64, c.c_uint64, c.POINTER(c.c_uint64)],
    ),
    "df_engine_reserve": (c.c_int, [_engine, c.c_uint64]),
    "df_engine_fail": (c.c_int, [_engine, c.c_int64, c.c_char_p]),
    "df_engine_room": (c.c_int, [_engine, c.POINTER(c.c_uint32)]),
    "df_engine_wait": (c.c_int, [_engine, c.c_int64, c.c_int, c.c_uint64]),
    "df_engine_poll": (c.c_int, [_engine, c.POINTER(CReport), c.c_size_t, c.POINTER(c.c_size_t)]),
    "df_engine_progress": (c.c_int, [_engine, c.POINTER(CProgress), c.c_size_t, c.POINTER(c.c_size_t)]),
    "df_engine_remove": (c.c_int, [_engine, c.POINTER(c.c_int64), c.c_size_t]),
    "df_engine_supersede": (c.c_int, [_engine, c.c_int64, c.c_int64]),
    "df_engine_replace": (c.c_int, [_engine, c.c_int64, c.c_int64]),
    "df_engine_hold": (c.c_int, [_engine, c.c_int64, c.POINTER(c.c_int32)]),
    "df_engine_tune": (c.c_int, [_engine, c.c_uint64, c.c_uint64, c.c_uint64]),
    "df_engine_drain": (c.c_int, [_engine, c.c_uint64]),
    "df_engine_idle": (c.c_int, [_engine, c.POINTER(c.c_uint64)]),
    "df_engine_stats": (c.c_int, [_engine, c.POINTER(CStats)]),
    "df_engine_close": (c.c_int, [_engine]),
    "df_area_open": (c.c_int, [c.POINTER(c.c_uint64)]),
    "df_area_group": (c.c_int, [c.c_uint64, c.c_uint64, c.POINTER(CPiece), c.c_size_t]),
    "df_area_attach": (c.c_int, [c.c_uint64, _engine, c.c_uint64]),
    "df_area_capture": (
        c.c_int,
        [c.c_uint64, c.c_uint64, c.POINTER(c.c_void_p), c.POINTER(c.c_uint64), c.c_size_t],
    ),
    "df_area_collect": (c.c_int, [c.c_uint64, c.POINTER(c.c_void_p), c.POINTER(c.c_int32)]),
    "df_area_late": (c.c_int, [c.c_uint64, c.c_uint64, c.c_int32]),
    "df_area_held": (c.c_int, [c.c_uint64, c.POINTER(c.c_uint64)]),
    "df_area_note": (c.c_int, [c.c_uint64, c.c_uint64, c.POINTER(c.c_double), c.POINTER(c.c_int32)]),
    "df_area_marks": (c.c_int, [c.c_uint64, c.c_uint64]),
    "df_area_mark": (c.c_int, [c.c_uint64, c.c_uint64]),
    "df_area_marked": (c.c_int, [c.c_uint64, c.POINTER(CMark), c.c_size_t]),
    "df_area_discard": (c.c_int, [c.c_uint64]),
    "df_area_drop": (c.c_int, [c.c_uint64]),
    "df_area_close": (c.c_int, [c.c_uint64]),
    "df_tensorflow_register": (c.c_int, []),
    "df_slot_inspect": (c.c_int, [c.c_char_p, c.POINTER(CSlotInfo)]),
    "df_slot_transfer": (c.c_int, [c.c_char_p, c.c_char_p]),
    "df_commit": (c.c_int, [c.c_char_p, c.c_int64, c.POINTER(c.c_uint8)]),
    "df_probe": (
        c.c_int,
        [c.c_char_p, c.c_uint32, c.c_uint64, c.c_uint64, c.c_uint64, c.POINTER(c.c_double), c.POINTER(c.c_double)],
    ),
    "df_newest": (c.c_int, [c.c_char_p, c.POINTER(c.c_int64)]),
}
