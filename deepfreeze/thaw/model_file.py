"""A checkpoint's model file, opened, with all that says what its bytes must be."""

from __future__ import annotations

import os
from pathlib import Path

from deepfreeze.core import names
from deepfreeze.core.durable import unreadable
from deepfreeze.core.errors import CorruptError
from deepfreeze.core.fields import DAMAGED, open_file
from deepfreeze.core.run import Run
from deepfreeze.thaw.records import merge, read_record, uncovered


class ModelFile:
    """``fd``: open for reading until ``close``, so that the job's retention can't take the file away; ``extents``: the records'
    ranges with their checksums (``merge``), which cover every byte of the file once."""

    def __init__(self, run: Run, step: int) -> None:
        """NotFoundError if there is no such checkpoint; CorruptError if its manifest, structure or a record is damaged, or the
        file missing or of another size."""
        self.fd = -1
        self.manifest = run.manifest(step)
        self.structure = run.structure(self.manifest.structure)
        folder = run.step_path(step)
        self.path: Path = folder / names.MODEL_FILE
        self.nbytes = self.manifest.file_size
        if self.structure.file_size != self.nbytes:
            raise self.error(f"{self.nbytes} bytes (manifest)", f"{self.structure.file_size} (structure)")
        self.records = [read_record(folder, self.manifest, rank) for rank in range(self.manifest.world_size)]
        self.extents = merge(self.records)
        for kind, offset, nbytes in uncovered(self.extents, self.nbytes)[:1]:
            raise self.error("records that cover every byte once", f"bytes {offset} to {offset + nbytes} {kind}")
        try:
            self.fd = open_file(self.path)
        except FileNotFoundError:
            raise self.error("the model file", "no such file") from None
        except OSError as error:
            raise unreadable(self.path, error) from error
        size = os.fstat(self.fd).st_size
        if size != self.nbytes:
            self.close()
            raise self.error(f"{self.nbytes} bytes", f"{size} bytes")

    def error(self, expected: str, found: str) -> CorruptError:
        """Damage of this file."""
        return CorruptError(where=self.path, expected=expected, found=found, todo=DAMAGED)

    def close(self) -> None:
        """Lets go of the file. May be repeated."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)
