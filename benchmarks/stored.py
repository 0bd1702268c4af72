"""Samples of how many bytes of checkpoints lie in a run, taken as fast as possible by a thread."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from benchmarks.capture_memory import Samples, repeated


def taken(run: Path) -> int:
    """Bytes of committed, partial and removed checkpoints, by the files' own sizes."""
    total = 0
    with contextlib.suppress(FileNotFoundError):
        for folder in run.iterdir():
            if "step-" in folder.name and folder.is_dir():
                for file in folder.rglob("*"):
                    with contextlib.suppress(FileNotFoundError):
                        total += file.lstat().st_size if file.is_file() else 0
    return total


def _names(run: str | os.PathLike) -> set[str]:
    return set(os.listdir(run)) if os.path.isdir(run) else set()


@contextlib.contextmanager
def sampled(run: str | os.PathLike) -> Iterator[Samples]:
    """Samples ``run``, which need not exist yet, during the ``with`` block."""
    samples = Samples()

    def sample() -> None:
        before, bytes_taken = _names(run), taken(Path(run))
        if before == _names(run):  # else a checkpoint that went and one that came meanwhile may both be counted
            samples.most = max(samples.most, bytes_taken)
            samples.number += 1

    with repeated(sample):
        yield samples
