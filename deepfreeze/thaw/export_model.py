"""``.weights.h5``: a checkpoint's model file as it is, every byte checked while it is copied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import google_crc32c
import numpy as np

from deepfreeze.core import names
from deepfreeze.core.durable import unreadable
from deepfreeze.core.errors import CorruptError
from deepfreeze.core.fields import DAMAGED, open_file
from deepfreeze.core.run import Run
from deepfreeze.core.structure import Structure
from deepfreeze.thaw.records import merge, read_record, uncovered
from deepfreeze.thaw.verify import Progress

_PIECE = 2 << 20


def write(run: Run, step: int, file: BinaryIO, progress: Progress) -> None:
    """Copies the model file. CorruptError naming the first damage; what was written then means nothing."""
    for piece in pieces(run, step, progress):
        file.write(piece)


def pieces(run: Run, step: int, progress: Progress) -> Iterator[memoryview]:
    """The model file's bytes from first to last, each piece to be used before the next is asked for.

    A piece may come before its extent is known to be whole: only when the iterator ends without CorruptError was all right.
    """
    manifest = run.manifest(step)
    structure = run.structure(manifest.structure)
    folder = run.step_path(step)
    path = folder / names.MODEL_FILE
    records = [read_record(folder, manifest, rank) for rank in range(manifest.world_size)]
    extents = merge(records)
    for kind, offset, nbytes in uncovered(extents, manifest.file_size)[:1]:
        raise _error(path, "records that cover every byte once", f"bytes {offset} to {offset + nbytes} {kind}")
    try:
        fd = open_file(path)
    except FileNotFoundError:
        raise _error(path, "the model file", "no such file") from None
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        size = os.fstat(fd).st_size
        if not size == manifest.file_size == structure.file_size:
            raise _error(path, f"{manifest.file_size} bytes", f"{size} (in the structure {structure.file_size})")
        buffer = np.empty(_PIECE, np.uint8)
        progress(0, size)
        # Sorted and without gaps, so in turn they are the whole file.
        for offset, nbytes, wanted in zip(*(extents[key].tolist() for key in ("offset", "nbytes", "crc32c"))):
            crc = 0
            for piece in _read(fd, path, offset, offset + nbytes, buffer):
                crc = google_crc32c.extend(crc, piece)
                yield piece.data
            if crc != wanted:
                raise _error(path, f"CRC32C {wanted:08x} for {_region(structure, offset, nbytes)}", f"{crc:08x}")
            progress(offset + nbytes, size)
    finally:
        os.close(fd)


def _read(fd: int, path: Path, begin: int, end: int, buffer: np.ndarray) -> Iterator[np.ndarray]:
    while begin < end:
        try:
            n = os.preadv(fd, [buffer[: min(len(buffer), end - begin)].data], begin)
        except OSError as error:
            raise unreadable(path, error) from error
        if n == 0:
            raise _error(path, f"at least {end} bytes", f"the end at byte {begin}")
        yield buffer[:n]
        begin += n


def _region(structure: Structure, offset: int, nbytes: int) -> str:
    tensors = structure.within(offset, nbytes) or ["HDF5's own bytes"]
    more = f" and {len(tensors) - 3} more" if len(tensors) > 3 else ""
    return f"bytes {offset} to {offset + nbytes} ({', '.join(tensors[:3])}{more})"


def _error(path: Path, expected: str, found: str) -> CorruptError:
    return CorruptError(where=path, expected=expected, found=found, todo=DAMAGED)
