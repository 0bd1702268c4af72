"""The part of ``benchmarks.concurrency`` that has N checkpoints on their way, as in Figure 12 of PCcheck (ASPLOS 2025).

Trainings of `light` that save every k steps to the disk, without a local tier, with ``in_flight`` and ``uncommitted`` of N. In each round
a training with each k and N, and one without checkpoints, run in one process, in an order that changes from round to round. slowdown: the
time of a step over that in the training without checkpoints of the same round.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import pccheck_published
from benchmarks.concurrency_rows import cell, find, middle, ratios
from benchmarks.concurrency_trainings import checkpoints, trained
from benchmarks.report import Row, table

MANY = (1, 2, 3, 4)
# Steps between checkpoints -> the periods that are timed, of each training.
PERIODS, QUICK = {1: 6, 2: 6, 5: 4, 10: 3, 30: 1}, {2: 2}
FEW = 10  # steps between checkpoints from which on one is over when the next is due: fewer periods fill the engine
PLAIN, PLAIN_FIRST = 40, 5  # steps without checkpoints, and those before them
ROUNDS = 2
SOURCE = "text 5.2"

TEXT = """**How many at once?** (Figure 12) N is the number of checkpoints that may be on their way (`in_flight`, `uncommitted`). The
slowdown is the time of a step of `light` over that of a training without checkpoints. A step of `light` computes next to nothing, so the
first columns show a training that waits for the disk. The paper's lines are of other models, whose steps take longer."""


def measure(quick: bool, disk: Path) -> list[Row]:
    """A row for the training without checkpoints, and for each interval and N."""
    periods, several = (QUICK, MANY[:2]) if quick else (PERIODS, MANY)
    kinds = [(every, many) for every in periods for many in several]
    settings: list[dict[str, Any]] = [{"every": None, "skip": PLAIN_FIRST, "steps": PLAIN}]
    for every, many in kinds:
        filling = many + 1 if every < FEW else 1
        settings.append(
            {"every": every, "skip": every * filling, "steps": every * periods[every], "engine": checkpoints(many)}
        )
    plain, *found = trained("in flight", "light", settings, 1 if quick else ROUNDS, disk)
    rows = [Row({"workload": "light", "every": None, "checkpoints": 0}).add("rate", "1/s", plain["rate"])]
    for (every, many), one in zip(kinds, found, strict=True):
        rows.append(Row({"workload": "light", "every": every, "checkpoints": many}).add("rate", "1/s", one["rate"]))
    return rows


def slowdown(rows: list[Row], row: Row) -> list[float]:
    """Of each round."""
    return ratios(find(rows, every=None), row)


def _axes(rows: list[Row]) -> tuple[list[int], list[int]]:
    """The intervals and the Ns, in order."""
    own = [row.labels for row in rows if row.labels["every"] is not None]
    return sorted({of["every"] for of in own}), sorted({of["checkpoints"] for of in own})


def tables(rows: list[Row]) -> str:
    """A line for each N, a column for each interval; then the paper's slowdowns."""
    intervals, several = _axes(rows)
    lines: list[list[Any]] = []
    for many in several:
        found = [slowdown(rows, find(rows, every=every, checkpoints=many)) for every in intervals]
        lines.append([many, *(cell(one, 2) for one in found)])
    head = ["N", *(f"every {every}" for every in intervals)]
    published = [
        [f"{line['system']}, {line['model']}", line["interval"], line["value"]]
        for line in pccheck_published.lines(SOURCE)
        if line["quantity"] == "slowdown" and line["interval"].isdecimal()  # of one interval, on one machine
    ]
    theirs = table(["as published", "every", "slowdown"], published)
    return f"{TEXT}\n\n" + table(head, lines) + f"\n\n{theirs}"


def draw(axes: Any, rows: list[Row]) -> None:
    """The slowdown over the interval, a line for each N."""
    intervals, several = _axes(rows)
    for many in several:
        found = [middle(slowdown(rows, find(rows, every=every, checkpoints=many))) for every in intervals]
        axes.plot(intervals, found, "o-", label=f"N = {many}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(intervals, [str(every) for every in intervals])
    axes.minorticks_off()
    axes.axhline(1, color="grey", linestyle="--", linewidth=1)
    axes.set(xlabel="steps between checkpoints", ylabel="slowdown", title="Checkpoints at once (Figure 12)")
