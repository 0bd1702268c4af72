"""The part of ``benchmarks.concurrency`` that times one checkpoint, from submit to commit, as in Figure 11 of PCcheck (ASPLOS 2025).

The engine alone, in a process without TensorFlow, on one rank and on the disk, without a local tier: as it comes, with direct writes; and
as CheckFreq persists a checkpoint, with one writer through the page cache, and a sync. Each checkpoint is alone. Both ways take turns,
and a ratio compares the times of one round.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import pccheck_published
from benchmarks.concurrency_rows import cell, middle, ratios, turns
from benchmarks.ranks import Ranks, footprint
from benchmarks.report import Row, say, span, table
from deepfreeze.engine.options import Engine

SIZES, QUICK_SIZES = (25_000_000, 100_000_000, 400_000_000, 800_000_000), (1_000_000, 4_000_000)
ROUNDS, QUICK_ROUNDS = 7, 2
OURS, THEIRS = "engine", "one writer, page cache"
WAYS: dict[str, dict[str, Any]] = {
    OURS: {"writers": Engine().writers, "cached": False},
    THEIRS: {"writers": 1, "cached": True},
}
SOURCE = "Figure 11"

TEXT = f"""**The time of one checkpoint**, from submit to commit, without a training (Figure 11). The engine writes directly with
{Engine().writers} writers. Beside it stands the engine as CheckFreq persists a checkpoint: one writer, through the page cache, and a
sync."""


def measure(quick: bool, disk: Path) -> list[Row]:
    """A row for each size, with the seconds of both ways."""
    sizes, rounds = (QUICK_SIZES, QUICK_ROUNDS) if quick else (SIZES, ROUNDS)
    rows = [Row({"nbytes": nbytes}) for nbytes in sizes]
    with Ranks(1, footprint([(max(sizes), 0)]), program="concurrency_engine") as ranks:
        for row in rows:
            nbytes = row.labels["nbytes"]
            say(f"the time of one checkpoint: {nbytes / 1e6:.0f} MB, {rounds} rounds")
            engines = {way: ranks.open([[(nbytes, 0)]], disk, None, **options) for way, options in WAYS.items()}
            seconds: dict[str, list[float]] = {way: [] for way in WAYS}
            for number in range(1 + rounds):  # the first one finds its memory
                for way in turns(number, list(WAYS)):
                    seconds[way].append(engines[way].save().committed)
            for way, engine in engines.items():
                engine.close()
                row.add(way, "s", seconds[way][1:])
            row.add(
                "ratio",
                "",
                ratios(Row({}).add("s", "s", seconds[THEIRS][1:]), Row({}).add("s", "s", seconds[OURS][1:]), "s"),
            )
    return rows


def tables(rows: list[Row]) -> str:
    """A line for each size, and the paper's."""
    lines: list[list[Any]] = []
    for row in rows:
        times = [span(row, way, 1e3, 0) for way in WAYS]
        lines.append([f"{row.labels['nbytes'] / 1e6:.0f}", *times, cell(row.samples("ratio"), 2)])
    (most,) = pccheck_published.numbers(SOURCE)
    lines.append(["PCcheck over CheckFreq and GPM", "-", "-", f"{most:g} at most"])
    head = ["MB", *(f"{way}, ms" for way in WAYS), "so much faster is the engine (95 %)"]
    return f"{TEXT}\n\n" + table(head, lines)


def draw(axes: Any, rows: list[Row]) -> None:
    """Seconds over bytes."""
    for way in WAYS:
        points = [(row.labels["nbytes"] / 1e6, middle(row.samples(way))) for row in rows]
        axes.plot(*zip(*points), "o-", label=way)
    axes.set(xlabel="checkpoint, MB", ylabel="s until the commit", title="One checkpoint (Figure 11)")
