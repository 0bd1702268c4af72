"""``.weights.h5``: a checkpoint's model file as it is, every byte checked while it is copied."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from deepfreeze.format import crc32c
from deepfreeze.format.structure import Structure
from deepfreeze.inspect.verify import OnProgress
from deepfreeze.store.durable import unreadable
from deepfreeze.store.run import Run
from deepfreeze.thaw.model_file import ModelFile

_PIECE = 2 << 20


def write(run: Run, step: int, file: BinaryIO, progress: OnProgress) -> None:
    """Copies the model file. CorruptError naming the first damage; what was written then means nothing."""
    for piece in pieces(run, step, progress):
        file.write(piece)


def pieces(run: Run, step: int, progress: OnProgress) -> Iterator[memoryview]:
    """The model file's bytes from first to last, each piece to be used before the next is asked for.

    A piece may come before its extent is known to be whole: only when the iterator ends without CorruptError was all right.
    """
    file = ModelFile(run, step)
    try:
        buffer = np.empty(_PIECE, np.uint8)
        progress(0, file.nbytes)
        # Sorted and without gaps, so in turn they are the whole file.
        for offset, nbytes, wanted in zip(
            *(file.table.extents[key].tolist() for key in ("offset", "nbytes", "crc32c"))
        ):
            crc = 0
            for piece in _read(file, offset, offset + nbytes, buffer):
                crc = crc32c.extend(crc, piece)
                yield piece.data
            if crc != wanted:
                raise file.error(
                    f"CRC32C {wanted:08x} for {_region(file.table.structure, offset, nbytes)}", f"{crc:08x}"
                )
            progress(offset + nbytes, file.nbytes)
    finally:
        file.close()


def _read(file: ModelFile, begin: int, end: int, buffer: np.ndarray) -> Iterator[np.ndarray]:
    while begin < end:
        try:
            n = os.preadv(file.fd, [buffer[: min(len(buffer), end - begin)].data], begin)
        except OSError as error:
            raise unreadable(file.path, error) from error
        if n == 0:
            raise file.error(f"at least {end} bytes", f"the end at byte {begin}")
        yield buffer[:n]
        begin += n


def _region(structure: Structure, offset: int, nbytes: int) -> str:
    tensors = structure.within(offset, nbytes) or ["HDF5's own bytes"]
    more = f" and {len(tensors) - 3} more" if len(tensors) > 3 else ""
    return f"bytes {offset} to {offset + nbytes} ({', '.join(tensors[:3])}{more})"
