"""A checkpoint's model file, open, beside the table of the checksums that its bytes must have."""

from __future__ import annotations

from pathlib import Path

from deepfreeze.errors import CorruptError
from deepfreeze.format import names
from deepfreeze.format.strict_json import DAMAGED
from deepfreeze.store.failures import unreadable
from deepfreeze.store.run import Run
from deepfreeze.thaw.extent_table import ExtentTable


class ModelFile:
    """``ranges``: the file, open until ``close``; what is open can still be read after the job's retention has deleted it. ``table``: what
    the file's bytes must be; ``nbytes``: the file's size."""

    def __init__(self, run: Run, step: int, table: ExtentTable | None = None) -> None:
        """``table``: this checkpoint's, if it was read already. NotFoundError if there is no such checkpoint; CorruptError if its
        manifest, structure or a record is damaged, or the file missing or of another size."""
        self.table = ExtentTable.read(run, step) if table is None else table
        name = run.step_file(step, names.MODEL_FILE)
        self.path: Path = run.store.where(name)
        self.nbytes = self.table.manifest.file_size
        try:
            self.ranges = run.store.open(name)
        except FileNotFoundError:
            raise self.error("the model file", "no such file") from None
        except OSError as error:
            raise unreadable(self.path, error) from error
        if self.ranges.size != self.nbytes:
            self.close()
            raise self.error(f"{self.nbytes} bytes", f"{self.ranges.size} bytes")

    def error(self, expected: str, found: str) -> CorruptError:
        """The CorruptError that says what is wrong with this file."""
        return CorruptError(where=self.path, expected=expected, found=found, todo=DAMAGED)

    def close(self) -> None:
        """Closes the file. May be called again."""
        self.ranges.close()
