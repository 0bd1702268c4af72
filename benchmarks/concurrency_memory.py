"""The part of ``benchmarks.concurrency`` that gives captures less memory, as in Figure 14 of PCcheck (ASPLOS 2025).

Trainings that save every k steps, on one rank, to the disk without a local tier, with ``memory=`` of 1.25, 2 and 3 shards and the
writers' blocks. With 1.25 shards there is one capture, as with 1; there the chunks vary too. The workload has the weights of NT3 and next
to no computation, so a step takes less time than its checkpoint. peak: the most bytes of captures in any sample of a further training of
the same kind, which is not timed: resident memory that forked children do not get, less what there was of it before.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks import pccheck_published
from benchmarks.concurrency_rows import cell, find, middle, ratios
from benchmarks.concurrency_trainings import FILLING, trained
from benchmarks.report import Row, table
from deepfreeze.engine.options import Engine

BASE = 2.0  # shards; the ratios' denominator, as in the paper
MIB = 1 << 20
CHUNK = Engine().chunk_bytes // MIB
# Memory in shards, and MiB of a chunk.
MEMORY = ((1.25, CHUNK), (BASE, CHUNK), (3.0, CHUNK))
CHUNKS = ((1.25, 1), (1.25, 16))
# Workload and steps between checkpoints -> settings, the measured periods of a training, and rounds.
PLAN = {("light", 10): (MEMORY, 10, 4), ("light", 2): (MEMORY + CHUNKS, 10, 3)}
QUICK = {("light", 2): (MEMORY[:2] + CHUNKS[:1], 2, 1)}
SAMPLED = 4  # periods of a training that is sampled
SOURCE = "Figure 14"

TEXT = """**Memory for captures.** What does it cost that captures have less memory (`memory=`)? Figure 14 of PCcheck asks this for a
memory of m to 2 m, m being the bytes of a rank's shard. With less than two shards there is one capture at a time, whose memory the next
one takes part by part. A checkpoint in every 2nd step is more than the disk takes here, so training waits for it in any case; a
checkpoint in every 10th is about what it takes. *Peak* is the greatest of many samples of what captures held, in a training that is
not timed."""
OF_CHUNKS = f"The chunks of 1 and 16 MiB stand beside the engine's own of {CHUNK} MiB."


def measure(quick: bool, disk: Path) -> list[Row]:
    """A job for each workload and interval."""
    rows = []
    for (name, every), (settings, periods, rounds) in (QUICK if quick else PLAN).items():
        own = [
            {
                "every": every,
                "skip": every * FILLING,
                "steps": every * periods,
                "sampled": every * (2 if quick else SAMPLED),
                "shards": shards,
                "engine": {"chunk_bytes": chunk * MIB},
            }
            for shards, chunk in settings
        ]
        found = trained(f"memory, every {every}", name, own, rounds, disk)
        for (shards, chunk), one in zip(settings, found, strict=True):
            labels = {"workload": name, "every": every, "memory": shards, "chunk": chunk}
            row = Row({**labels, "nbytes": one["bytes"], "shard": one["shard"], "samples": one["samples"]})
            rows.append(row.add("rate", "1/s", one["rate"]).add("peak", "B", [one["peak"]]))
    return rows


def compared(rows: list[Row], row: Row) -> list[float]:
    """Of each round: the rate over that with ``BASE`` shards of memory."""
    of = row.labels
    return ratios(row, find(rows, workload=of["workload"], every=of["every"], memory=BASE))


def tables(rows: list[Row]) -> str:
    """A line for each workload, interval, memory and chunk."""
    lines: list[list[Any]] = []
    for row in rows:
        of = row.labels
        lines.append(
            [
                of["workload"],
                of["every"],
                f"{of['memory']:g}",
                of["chunk"],
                f"{of['nbytes'] / 1e6:.0f}",
                f"{row.median('peak') / 1e6:.0f}",
                f"{row.median('rate'):.2f}",
                "1" if of["memory"] == BASE else cell(compared(rows, row)),
            ]
        )
    (line,) = pccheck_published.lines(SOURCE)
    paper = f"PCcheck: {line['model']}, every {line['interval']}, m instead of 2 m"
    lines.append([paper, line["interval"], "1", "-", "-", "-", "-", f"{_published():.2f} at least"])
    head = ["workload", "every", "memory, shards", "chunk, MiB", "memory, MB", "peak, MB", "steps/s"]
    text = f"{TEXT} {OF_CHUNKS}" if any(row.labels["chunk"] != CHUNK for row in rows) else TEXT
    return f"{text}\n\n" + table([*head, f"rate over that of {BASE:g} shards (95 %)"], lines)


def _published() -> float:
    (cost,) = pccheck_published.numbers(SOURCE)
    return 1 - cost / 100


def draw(axes: Any, rows: list[Row]) -> None:
    """The ratios over the memory."""
    for name, every in dict.fromkeys((row.labels["workload"], row.labels["every"]) for row in rows):
        own = [row for row in rows if (row.labels["workload"], row.labels["every"]) == (name, every)]
        line = [row for row in own if row.labels["chunk"] == CHUNK]
        shown = [middle(compared(rows, row)) for row in line]
        axes.plot([row.labels["memory"] for row in line], shown, "o-", label=f"{name}, every {every}")
        for row in (row for row in own if row.labels["chunk"] != CHUNK):
            label = f"every {every}, {row.labels['chunk']} MiB"
            axes.plot([row.labels["memory"]], [middle(compared(rows, row))], "x", label=label)
    axes.axhline(_published(), color="grey", linestyle="--", linewidth=1)
    axes.set(xlabel="memory of captures, shards", ylabel=f"rate over that of {BASE:g}", title="Memory (Figure 14)")
    axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
