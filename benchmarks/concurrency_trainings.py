"""Starts the trainings of ``benchmarks.concurrency_rank`` for the parts of ``benchmarks.concurrency``. Imports no TensorFlow."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import jobs
from benchmarks.report import say

FILLING = 4  # periods that are not measured: the first captures find their memory
_LIMIT = 1500.0  # seconds


def trained(
    what: str, workload: str, settings: Sequence[dict[str, Any]], rounds: int, disk: Path
) -> list[dict[str, Any]]:
    """For each setting what its trainings have shown, in one process that has a training with each of them in every round, in turns.

    A setting: ``every`` (None: a training without checkpoints); ``skip`` and ``steps``: the steps that are not timed, and those that are;
    ``shards``: memory for captures, if it is bounded; ``engine``: options of the engine; ``wait_for``: as of ``deepfreeze.Checkpoint``;
    ``touch``: how many of the first steps have a checkpoint besides, so that the engine's memory is touched; ``sampled``: steps of a
    further training whose captures and checkpoints are sampled. What is found: ``rate`` (steps per second, by round), ``commits``
    (seconds from each hand-over to the commit, in the steps that were timed), ``bytes`` (the memory given), ``shard`` (the bytes of a
    checkpoint); and if it was sampled ``peak``, ``samples``, ``stored`` and ``looks``: the most bytes of captures and of the run's
    checkpoints, and the numbers of samples."""
    say(f"{what}: {rounds} rounds of {len(settings)} trainings ...")
    params = {"measure": "trainings", "workload": workload, "settings": list(settings), "rounds": rounds}
    params["folder"] = str(jobs.empty(disk, "job"))
    (found,) = jobs.gather("concurrency_rank", params, 1, disk, _LIMIT)
    return found


def checkpoints(many: int, **options: Any) -> dict[str, Any]:
    """The engine's options for so many checkpoints on their way. Writes go past the page cache: no probe decides it, which might choose
    otherwise from training to training."""
    return {"in_flight": many, "uncommitted": many, "io": "direct", **options}
