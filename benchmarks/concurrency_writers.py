"""The part of ``benchmarks.concurrency`` that gives the engine fewer writers, as in Figure 13 of PCcheck (ASPLOS 2025).

Trainings of `light` that save every 2nd step to the disk, without a local tier, with N checkpoints on their way and 1 to 8 writers, which
these share. All run in one process, in an order that changes from round to round, and a ratio compares the trainings of one round.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import pccheck_published
from benchmarks.concurrency_rows import cell, find, middle, ratios
from benchmarks.concurrency_trainings import checkpoints, trained
from benchmarks.report import Row, span, table

EVERY = 2
MANY, WRITERS = (1, 2, 3), (1, 2, 3, 4, 8)
QUICK_MANY, QUICK_WRITERS = (1,), (1, 3)
PAPERS = 3  # writers that the paper compares with one
PERIODS, QUICK_PERIODS = 6, 2
ROUNDS = 2
SOURCE = "Figure 13"

TEXT = f"""**How many writers?** (Figure 13) The checkpoints on their way share the writers. A training of `light` saves every {EVERY}nd
step, so it waits for the disk, and its rate is that of the checkpoints."""


def measure(quick: bool, disk: Path) -> list[Row]:
    """A row for each N and number of writers."""
    several, writers = (QUICK_MANY, QUICK_WRITERS) if quick else (MANY, WRITERS)
    kinds = [(many, threads) for many in several for threads in writers]
    periods = QUICK_PERIODS if quick else PERIODS
    settings = [
        {
            "every": EVERY,
            "skip": EVERY * (many + 1),
            "steps": EVERY * periods,
            "engine": checkpoints(many, writers=threads),
        }
        for many, threads in kinds
    ]
    found = trained("writers", "light", settings, 1 if quick else ROUNDS, disk)
    labels = [{"workload": "light", "every": EVERY, "checkpoints": many, "writers": threads} for many, threads in kinds]
    return [Row(of).add("rate", "1/s", one["rate"]) for of, one in zip(labels, found, strict=True)]


def compared(rows: list[Row], row: Row) -> list[float]:
    """Of each round: the rate over that with one writer."""
    return ratios(row, find(rows, checkpoints=row.labels["checkpoints"], writers=1))


def _published() -> dict[int, float]:
    """N -> how much faster the paper is with three writers than with one."""
    return dict(enumerate(pccheck_published.numbers(SOURCE), 1))


def tables(rows: list[Row]) -> str:
    """A line for each N and number of writers."""
    published, lines = _published(), []
    for row in rows:
        many, writers = row.labels["checkpoints"], row.labels["writers"]
        theirs = f"{published[many]:.2f}" if writers == PAPERS and many in published else "-"
        ratio = "1" if writers == 1 else cell(compared(rows, row), 2)
        lines.append([many, writers, span(row, "rate", digits=2), ratio, theirs])
    (line,) = pccheck_published.lines(SOURCE)
    paper = f"PCcheck: {line['model']}, every {line['interval']}"
    return f"{TEXT}\n\n" + table(["N", "writers", "steps/s", "over one writer (95 %)", paper], lines)


def draw(axes: Any, rows: list[Row]) -> None:
    """The ratios over the writers, a line for each N, and the paper's as crosses."""
    published = _published()
    for many in sorted({row.labels["checkpoints"] for row in rows}):
        own = [row for row in rows if row.labels["checkpoints"] == many]
        found = [middle(compared(rows, row)) for row in own]
        (line,) = axes.plot([row.labels["writers"] for row in own], found, "o-", label=f"N = {many}")
        if many in published:
            axes.plot([PAPERS], [published[many]], "x", color=line.get_color())
    axes.axhline(1, color="grey", linestyle="--", linewidth=1)
    axes.set(xlabel="writers (x: PCcheck)", ylabel="rate over one writer's", title="Writers (Figure 13)")
