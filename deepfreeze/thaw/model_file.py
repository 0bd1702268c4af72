"""A checkpoint's model file, opened, with all that says what its bytes must be."""

from __future__ import annotations

import os
from pathlib import Path

from deepfreeze.errors import CorruptError
from deepfreeze.format import names
from deepfreeze.format.strict_json import DAMAGED
from deepfreeze.store.durable import unreadable
from deepfreeze.store.files import open_file
from deepfreeze.store.run import Run
from deepfreeze.thaw.extent_table import ExtentTable


class ModelFile:
    """``fd``: open for reading until ``close``, so that the job's retention can't take the file away; ``table``: what its bytes must
    be."""

    def __init__(self, run: Run, step: int, table: ExtentTable | None = None) -> None:
        """``table``: this checkpoint's, if it was read already. NotFoundError if there is no such checkpoint; CorruptError if its
        manifest, structure or a record is damaged, or the file missing or of another size."""
        self.fd = -1
        self.table = ExtentTable.read(run, step) if table is None else table
        self.path: Path = run.step_path(step) / names.MODEL_FILE
        self.nbytes = self.table.manifest.file_size
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
