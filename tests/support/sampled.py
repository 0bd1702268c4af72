"""Samples of how many bytes of checkpoints lie in a run, taken as fast as possible by a thread."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path


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


class Samples:
    """``most``: the largest sample; ``number``: how many there are."""

    def __init__(self) -> None:
        self.most = self.number = 0


@contextlib.contextmanager
def sampled(run: str | os.PathLike) -> Iterator[Samples]:
    """Samples ``run``, which need not exist yet, during the ``with`` block."""
    samples, over = Samples(), threading.Event()

    def sample() -> None:
        while not over.wait(0.0005):
            before, bytes_taken = _names(run), taken(Path(run))
            if before == _names(run):  # else a checkpoint that went and one that came meanwhile may both be counted
                samples.most = max(samples.most, bytes_taken)
                samples.number += 1

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()
