"""Checks a checkpoint: reads every byte of every file of it and compares it with the checksums in manifest and records."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from deepfreeze.errors import CorruptError, Error, NewerError
from deepfreeze.format import crc32c, names
from deepfreeze.format.manifest import Manifest
from deepfreeze.format.record import Record
from deepfreeze.format.structure import Structure
from deepfreeze.store.catalog import choose, numbered
from deepfreeze.store.failures import has_lost
from deepfreeze.store.ranges import Ranges
from deepfreeze.store.run import Run
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.thaw.extent_table import merge, uncovered
from deepfreeze.thaw.rank_records import each_record, file_of

# Called with (bytes done so far, bytes to do in all), from the thread of the caller.
OnProgress = Callable[[int, int], None]
_CHUNK = 1 << 20  # bytes read at a time


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong. ``file``: the name of the file; ``part``: the part of it, such as "bytes 0 to 4096 (dense/kernel)";
    ``expected`` and ``found``: its right and its present value."""

    file: str
    part: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.file}: {self.part}: expected {self.expected}; found {self.found}"


@dataclass(frozen=True)
class Verification:
    """The result of checking one checkpoint. ``files`` and ``nbytes``: how many files and bytes were read. ``seconds``: how long that took.
    ``problems``: empty if every byte is right.

    ``diverged``: the manifest's number of replicated tensors that differed between ranks. If it is not 0, the checkpoint is a mixture of
    the ranks' models, although its bytes may be right. ``damaged``: whether a problem lies in the checkpoint's own files; not so for a
    damaged structure file, which several checkpoints share, and for files that a newer version of DeepFreeze wrote. ``moved``: the path
    that ``quarantine`` has moved the checkpoint to, None if it was not moved.
    """

    run: str
    step: int
    path: str
    files: int
    nbytes: int
    problems: tuple[Problem, ...]
    diverged: int = 0
    damaged: bool = False
    moved: str | None = None
    seconds: float = field(default=0.0, compare=False)

    @property
    def ok(self) -> bool:
        """Whether there are no problems."""
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        """All fields and ``ok`` as plain JSON values."""
        return {"ok": self.ok, **asdict(self)}


def verify(
    run: str | os.PathLike[str], step: int | str | None = None, progress: OnProgress | None = None
) -> Verification:
    """Checks one checkpoint. ``step``: its step or its tag; None for the newest step directory, even if it has no valid manifest.
    ``progress`` is called with (bytes of the model file checked so far, size of the model file). NotFoundError if there is no such
    checkpoint or run, CorruptError if run.json is damaged, RunError if the run can't be read. All other damage is reported in the
    result."""
    opened_run = Run.open(run)
    steps = opened_run.step_dirs()
    chosen = steps[-1] if step is None and steps else numbered(opened_run, step)
    if chosen is None or chosen not in steps:
        chosen = choose(opened_run, chosen)  # raises, naming the steps that exist
    check = _Check(opened_run, chosen, progress or (lambda done, total: None))
    start = time.perf_counter()
    check.run_all()
    return Verification(
        run=str(opened_run.path),
        step=chosen,
        path=str(check.folder),
        files=check.files,
        nbytes=check.nbytes,
        problems=tuple(check.problems),
        diverged=check.diverged,
        damaged=check.damaged,
        seconds=time.perf_counter() - start,
    )


def quarantine(report: Verification) -> Verification:
    """Moves the checkpoint of a report to ``RUN/damaged`` if it is ``damaged``, and returns the report with its new path. The caller holds
    the run's lock, since before the check. RunError if the system refuses."""
    moved = WritableRun.open(report.run).quarantine(report.step) if report.damaged else None
    return replace(report, moved=None if moved is None else str(moved))


class _Check:
    """The check of one checkpoint, which collects problems and counts. ``run_all`` is called once."""

    def __init__(self, run: Run, step: int, progress: OnProgress) -> None:
        self.run = run
        self.step = step
        self.folder: Path = run.step_path(step)
        self.problems: list[Problem] = []
        self.files = 0
        self.nbytes = 0
        self.diverged = 0
        self.damaged = False
        self._progress = progress

    def run_all(self) -> None:
        manifest = self._try("the whole checkpoint", lambda: self.run.manifest(self.step))
        if manifest is None:
            return  # the manifest has the checksums of all other files
        self.diverged = manifest.diverged
        self._count(self.run.step_file(self.step, names.MANIFEST_FILE))
        self._list(manifest)
        structure = self._try("all tensors' names and places", lambda: self.run.structure(manifest.structure))
        if structure is not None:
            self._count(f"{names.STRUCTURES_DIR}/{names.structure_file(manifest.structure)}")
            if structure.file_size != manifest.file_size:
                file = names.structure_file(manifest.structure)
                self._add(file, "file size", str(manifest.file_size), str(structure.file_size), own=False)
        self._config(manifest.attempt)
        of_ranks = self._records(manifest, structure)
        extents = merge(of_ranks)
        # Without a record that could not be read, its ranges of the file look as if no record had them. That is no damage of its own: the
        # record's is counted already.
        all_read = len(of_ranks) == manifest.world_size
        for kind, offset, nbytes in uncovered(extents, manifest.file_size):
            found = "no record has them" if kind == "missing" else "two records have them"
            self._add(
                names.MODEL_FILE, _region(structure, offset, nbytes), "one record for every byte", found, all_read
            )
        self._model(manifest, structure, extents)

    def _config(self, attempt: str) -> None:
        """Checks the model's configuration, if the attempt has stored one."""
        file = f"{names.CONFIGS_DIR}/{names.config_file(attempt)}"
        if self.run.store.has(file) and self._try("the model's configuration", lambda: self.run.config(attempt)):
            self._count(file)

    def _list(self, manifest: Manifest) -> None:
        """Reports files that no checkpoint has."""
        # The ranks' own records may stay behind a commit that has gathered them: a crash can keep a rank from removing its own.
        known = {names.MODEL_FILE, names.MANIFEST_FILE, *map(names.record_file, range(manifest.world_size))}
        known |= {file_of(manifest, 0)}
        found = set(self.run.store.list(self.run.step_file(self.step))) - known
        for name in sorted(name for name in found if names.parse_node_record_file(name) is None):
            # Not ``own``: the checkpoint can be restored all the same.
            self._add(name, "the whole file", "no such file in a checkpoint", "it is there", own=False)

    def _records(self, manifest: Manifest, structure: Structure | None) -> list[np.ndarray]:
        """Checks all records, one after the other, and returns the extents of each that could be read."""

        def report(rank: int | None, error: Error) -> None:
            self._report("what all ranks wrote" if rank is None else f"what rank {rank} wrote", error)

        def check(record: Record) -> np.ndarray:
            file = file_of(manifest, record.identity.rank)
            self.nbytes += record.size
            self.files += not manifest.gathered
            if structure is not None and len(record.private) != structure.private_nbytes:
                expected = f"{structure.private_nbytes} private bytes"
                self._add(file, "per-rank tensors", expected, str(len(record.private)))
            if structure is not None and len(record.checksums) not in (0, len(structure.replicated)):
                expected = f"{len(structure.replicated)} checksums of replicated tensors, or none"
                self._add(file, "replica checksums", expected, str(len(record.checksums)))
            return record.extents

        extents = list(map(check, each_record(self.run, manifest, on_error=report)))
        self.files += bool(extents) and manifest.gathered
        return extents

    def _model(self, manifest: Manifest, structure: Structure | None, extents: np.ndarray) -> None:
        """Checks the model file against ``extents`` (dtype ``format.record.EXTENT``)."""
        try:
            file = self.run.store.open(self.run.step_file(self.step, names.MODEL_FILE))
        except (OSError, Error) as error:
            found = error.found if isinstance(error, Error) else error.strerror or str(error)
            own = isinstance(error, (Error, FileNotFoundError)) or has_lost(error)
            self._add(names.MODEL_FILE, "the whole file", f"{manifest.file_size} bytes", found, own)
            return
        try:
            self.files += 1
            if file.size != manifest.file_size:
                self._add(names.MODEL_FILE, "the whole file", f"{manifest.file_size} bytes", f"{file.size} bytes")
            done = 0
            buffer = np.empty(_CHUNK, np.uint8)
            self._progress(0, manifest.file_size)
            for extent in extents:
                offset, nbytes, wanted = int(extent["offset"]), int(extent["nbytes"]), int(extent["crc32c"])
                try:
                    crc = self._crc(file, offset, nbytes, buffer)
                except OSError as error:
                    found = error.strerror or str(error)
                    where = _region(structure, offset, nbytes)
                    self._add(names.MODEL_FILE, where, "readable bytes", found, has_lost(error))
                    continue
                if crc is None or crc != wanted:
                    found = "the file's end" if crc is None else f"{crc:08x}"
                    self._add(names.MODEL_FILE, _region(structure, offset, nbytes), f"CRC32C {wanted:08x}", found)
                done += nbytes
                self.nbytes += nbytes
                self._progress(min(done, manifest.file_size), manifest.file_size)
        finally:
            file.close()

    @staticmethod
    def _crc(file: Ranges, offset: int, nbytes: int, buffer: np.ndarray) -> int | None:
        """The CRC32C of a range of the file; None if the file ends before the range does."""
        crc, end = 0, offset + nbytes
        while offset < end:
            n = file.read(buffer[: min(_CHUNK, end - offset)], offset)
            if n == 0:
                return None
            crc = crc32c.extend(crc, buffer[:n])
            offset += n
        return crc

    def _count(self, name: str) -> None:
        self.files += 1
        with contextlib.closing(self.run.store.open(name)) as file:
            self.nbytes += file.size

    def _try(self, part: str, action: Callable[[], Any]) -> Any:
        """The result of ``action``; None if it raises, which is reported as a problem of ``part``."""
        try:
            return action()
        except Error as error:
            self._report(part, error)
            return None

    def _report(self, part: str, error: Error) -> None:
        """Reports an error as a problem of ``part``."""
        # A file that a newer version of DeepFreeze wrote is not damaged.
        found = f"{error.found}: {error.todo}" if isinstance(error, NewerError) else error.found
        damaged = isinstance(error, CorruptError) and not isinstance(error, NewerError)
        own = damaged and Path(error.where).parent == self.folder
        self._add(os.path.basename(error.where), part, error.expected, found, own)

    def _add(self, file: str, part: str, expected: str, found: str, own: bool = True) -> None:
        """Reports a problem. ``own``: whether the problem is damage of the checkpoint's own files."""
        self.damaged = self.damaged or own
        self.problems.append(Problem(file=file, part=part, expected=expected, found=found))


def _region(structure: Structure | None, offset: int, nbytes: int) -> str:
    """A range of the model file as text, which names the range's tensors if the structure is known."""
    return f"bytes {offset} to {offset + nbytes}" if structure is None else structure.describe(offset, nbytes)
