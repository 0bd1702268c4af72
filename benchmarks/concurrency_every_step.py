"""The part of ``benchmarks.concurrency`` that saves a checkpoint in every step, beside what the disk takes.

Trainings of `light`, whose checkpoints are more than any disk takes, with one and with two transfers at once, in turns. The disk is
measured before and after each of them, in the same process: a new file, direct writes. A ratio compares the bytes per second of one
training's steps, once the engine is full, with the median of these two samples.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks import jobs
from benchmarks.concurrency_rows import cell
from benchmarks.report import Row, say, span, table

TRANSFERS = (1, 2)
# Steps until memory has been touched once and every slot is in use; steps that are timed; rounds.
FILLING, STEPS, ROUNDS = 6, 10, 6
QUICK = (6, 4, 1)

TEXT = """**A checkpoint in every step** of `light` is more than a disk takes, so training waits for the disk: how much of the disk's rate
reaches the checkpoints? The disk is measured before and after each training, by direct writes of a new file as large as a checkpoint. The
local tier is in memory, as without any options."""


def measure(quick: bool, disk: Path) -> list[Row]:
    """A row for each number of transfers."""
    filling, steps, rounds = QUICK if quick else (FILLING, STEPS, ROUNDS)
    say(f"a checkpoint in every step: {rounds} rounds of {len(TRANSFERS)} trainings ...")
    params = {"measure": "every step", "workload": "light", "transfers": TRANSFERS, "rounds": rounds, "steps": steps}
    params |= {"filling": filling, "folder": str(jobs.empty(disk, "job"))}
    (found,) = jobs.gather("concurrency_rank", params, 1, disk, 900.0)
    return [row_of(found, many) for many in TRANSFERS]


def row_of(found: dict[str, list], transfers: int) -> Row:
    """The figures of the trainings with this number of transfers, as a row of the report."""
    at = [number for number, many in enumerate(found["order"]) if many == transfers]
    saved = [found["saved"][number] for number in at]
    disk = [statistics.median(found["disk"][number : number + 2]) for number in at]
    superseded = sum(found["superseded"][number] for number in at)
    row = Row({"workload": "light", "transfers": transfers, "superseded": superseded})
    row.add("throughput", "B/s", saved).add("disk", "B/s", disk)
    return row.add("ratio", "", [one / two for one, two in zip(saved, disk, strict=True)])


def tables(rows: list[Row]) -> str:
    """A line for each number of transfers."""
    lines = []
    for row in rows:
        rates = [span(row, name, 1e-9, 2) for name in ("throughput", "disk")]
        lines.append([row.labels["transfers"], *rates, cell(row.samples("ratio"), 2), row.labels["superseded"]])
    head = ["transfers", "saved, GB/s", "disk (O_DIRECT, new file), GB/s", "ratio (95 %)", "superseded"]
    return f"{TEXT}\n\n" + table(head, lines)
