"""The granules of a store: pieces of a file that it locks, or writes, as a whole.

Two ranks that write to one granule wait for each other: on Lustre and GPFS for the lock, which goes from node to node, and behind it for
the disks, which read and write the whole granule again. So the placement cuts the ranks' shares at granules where it can.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deepfreeze.format import names

_PAGE = 4096  # bytes; the clients of network file systems write whole pages
_LUSTRE, _GPFS = 0x0BD00BD0, 0x47504653  # f_type of statfs(2)
# Layouts of Lustre (lustre_user.h): of one component with and without the name of a pool, and of several components.
_PLAIN, _POOL, _COMPOSITE = 0x0BD10BD0, 0x0BD30BD0, 0x0BD60BD0
_STRIPE = struct.Struct("<24xI")  # of lov_user_md: lmm_stripe_size
_COUNT = struct.Struct("<14xH")  # of lov_comp_md_v1: lcm_entry_count
_COMPONENT = struct.Struct("<4xI16xI20x")  # lov_comp_md_entry_v1: lcme_flags, lcme_offset
_FIRST_COMPONENT = 32  # bytes of lov_comp_md_v1 before its first entry
_EXTENSION = 0x40  # the flag of a component that no byte is ever in


@dataclass(frozen=True)
class Granules:
    """Of one store, in bytes. ``block``: the piece that it locks or allocates as a whole, a page for a store without such pieces;
    ``stripe``: the piece of a file that is on one storage target, None for a store that puts a file on one target, or that does not tell.

    A size that is no power of two pages, or is above 64 MiB, counts as none (``plan.placement.choose_granule``)."""

    block: int = _PAGE
    stripe: int | None = None


def of_run(path: Path) -> Granules:
    """The granules of the file system that a run's directory is on. Takes one system call, and on Lustre one or two more. Raises nothing: a
    file system that does not tell has pages.

    - GPFS locks and allocates its blocks, and has their size in ``f_bsize``.
    - Lustre locks pages. Its stripes are those of the layout that new files in the run get.
    - Others have pages. The ``f_bsize`` of NFS is the size of a transfer, which binds no other client; a local file system has no other
      node."""
    kind, block = _statfs(path)
    if kind == _LUSTRE:
        return Granules(stripe=_lustre_stripe(path))
    return Granules(block=block) if kind == _GPFS else Granules()


def _statfs(path: Path) -> tuple[int, int]:
    """``f_type`` and ``f_bsize`` of statfs(2), whose first fields these are; (0, a page) if the system tells neither. ``os.statvfs`` lacks
    the type."""
    found = (ctypes.c_long * 64)()
    if ctypes.CDLL(None).statfs(os.fsencode(path), found) != 0:
        return 0, _PAGE
    return found[0], found[1]


def _lustre_stripe(path: Path) -> int | None:
    """The stripe size of new files in the directory ``path``, None if there is none to be found. A directory without a layout of its own
    has that of the file system; the run's own file, which was made there, tells it."""
    for asked in (path, path / names.RUN_FILE):
        try:
            stripes = list(_stripes(os.getxattr(asked, "lustre.lov")))
        except (OSError, struct.error):
            continue
        if any(stripes):
            return max(stripes)
    return None


def _stripes(layout: bytes) -> Iterator[int]:
    """The stripe size of each component of a layout, 0 for the default of the file system. ``layout``: the attribute ``lustre.lov``, which
    every user may read, as Lustre's client gives it out. struct.error if the layout is cut short."""
    (magic,) = struct.unpack_from("<I", layout)
    if magic in (_PLAIN, _POOL):
        yield from _STRIPE.unpack_from(layout)
    elif magic == _COMPOSITE:
        for number in range(_COUNT.unpack_from(layout)[0]):
            flags, offset = _COMPONENT.unpack_from(layout, _FIRST_COMPONENT + number * _COMPONENT.size)
            if not flags & _EXTENSION:
                yield from _STRIPE.unpack_from(layout, offset)
