"""``.weights.h5``: a copy of a checkpoint's model file. Every byte is compared with its checksum while it is copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from deepfreeze.format import crc32c
from deepfreeze.inspect.verify import OnProgress
from deepfreeze.store.failures import unreadable
from deepfreeze.store.run import Run
from deepfreeze.thaw.model_file import ModelFile

_CHUNK = 2 << 20  # bytes read at a time


def write(run: Run, step: int, file: BinaryIO, progress: OnProgress) -> None:
    """Copies the model file to ``file``. CorruptError naming the first damaged bytes: what was written up to then must not be used."""
    for chunk in checked_chunks(run, step, progress):
        file.write(chunk)


def checked_chunks(run: Run, step: int, progress: OnProgress) -> Iterator[memoryview]:
    """The model file's bytes from first to last, in chunks of at most 2 MiB. The next chunk overwrites the memory of the one before.

    CorruptError at the end of an extent with another checksum, after its chunks were given out: the bytes are right only if the
    iterator ends without an error. ``progress`` is called with (bytes checked so far, size of the model file).
    """
    file = ModelFile(run, step)
    try:
        buffer = np.empty(_CHUNK, np.uint8)
        progress(0, file.nbytes)
        # The extents are sorted and have no gaps: one after the other they are the whole file.
        for offset, nbytes, wanted in zip(
            *(file.table.extents[key].tolist() for key in ("offset", "nbytes", "crc32c"))
        ):
            crc = 0
            for chunk in _read(file, offset, offset + nbytes, buffer):
                crc = crc32c.extend(crc, chunk)
                yield chunk.data
            if crc != wanted:
                raise file.error(
                    f"CRC32C {wanted:08x} for {file.table.structure.describe(offset, nbytes)}", f"{crc:08x}"
                )
            progress(offset + nbytes, file.nbytes)
    finally:
        file.close()


def _read(file: ModelFile, begin: int, end: int, buffer: np.ndarray) -> Iterator[np.ndarray]:
    """The bytes ``begin`` to ``end`` of the file, in chunks that are read into ``buffer``."""
    while begin < end:
        try:
            n = file.ranges.read(buffer[: min(len(buffer), end - begin)], begin)
        except OSError as error:
            raise unreadable(file.path, error) from error
        if n == 0:
            raise file.error(f"at least {end} bytes", f"the end at byte {begin}")
        yield buffer[:n]
        begin += n
