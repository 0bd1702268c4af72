"""The items that the ranks of a job train, noted such that SIGKILL loses none, and the history that a chain of killed jobs has ended with.

Each rank of each attempt has a file, FOLDER/items/ATTEMPT-RANK. A line of it is written by one call before the step is trained, so that
the file has the items of every step that can be in a checkpoint, whenever the process is killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Step(NamedTuple):
    """The update ``number``, from 1, of a training: the ``items`` that the ranks have trained in it, sorted, and their ``epoch`` as Keras
    counts, from 0."""

    number: int
    epoch: int
    items: tuple[int, ...]


class Recorder:
    """Notes what this rank trains in this attempt. ``epoch``: the one that is under way; a callback sets it."""

    def __init__(self, folder: Path, attempt: int, rank: int) -> None:
        file = _file(folder, attempt, rank)
        file.parent.mkdir(exist_ok=True)
        self._to, self.epoch = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), -1

    def note(self, updates: Any, items: Any, weights: Any) -> np.int64:
        """``items`` (float, of shape ``(rows,)``) are about to be trained in the step after so many ``updates``. Rows of weight 0 are
        copies of another rank's. For ``tf.numpy_function``, which wants a value."""
        rows = [int(item) for item, weight in zip(items, weights, strict=True) if weight]
        os.write(self._to, f"{json.dumps([int(updates) + 1, self.epoch, rows])}\n".encode())
        return np.int64(0)


def begun(folder: Path, attempt: int, ranks: int) -> bool:
    """Whether all ranks of the attempt have come to their recorders."""
    return all(_file(folder, attempt, rank).exists() for rank in range(ranks))


def steps(folder: Path, attempt: int) -> dict[int, Step]:
    """The steps that the attempt has begun to train, by number. Of the last ones some ranks may be missing."""
    found: dict[int, Step] = {}
    for file in sorted((folder / "items").glob(f"{attempt}-*")):
        # A line without an end is of a step that the kill has kept from being trained.
        for line in file.read_text().split("\n")[:-1]:
            number, epoch, items = json.loads(line)
            before = found[number].items if number in found else ()
            found[number] = Step(number, epoch, tuple(sorted((*before, *items))))
    return found


def history(attempts: Iterable[dict[int, Step]]) -> list[Step]:
    """The steps that the last of the ``attempts`` has ended with, in order. An attempt goes on from a checkpoint: the step before its first
    one. What earlier attempts have trained beyond that checkpoint is lost, and is trained again by right."""
    kept: dict[int, Step] = {}
    for attempt in attempts:
        if attempt:
            kept = {number: step for number, step in kept.items() if number < min(attempt)} | attempt
    return [kept[number] for number in sorted(kept)]


def _file(folder: Path, attempt: int, rank: int) -> Path:
    return folder / "items" / f"{attempt}-{rank}"
