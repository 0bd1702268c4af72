"""How much slower is training when captures have less memory? python -m benchmarks.concurrency --help

As in Figure 14 of PCcheck (ASPLOS 2025): trainings that save every k steps, on one rank, to the disk without a local tier, with
``memory=`` of 1.25, 2 and 3 shards and the writers' blocks. With 1.25 shards there is one capture, as with 1. The workload has the weights
of NT3 and next to no computation, so a step takes less time than its checkpoint. In each round a training with each memory runs in one
process, in an order that changes from round to round. rate: steps per second of the whole periods, without the first ones, in which
memory is touched. A ratio compares the trainings of one round. peak: the most bytes of captures in any sample of a further training of
the same kind, which is not timed: resident memory that forked children do not get, less what there was of it before.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks import jobs
from benchmarks.report import Report, Row, interval, run, say, table

MEMORY = (1.25, 2.0, 3.0)  # shards
BASE = 2.0  # the ratios' denominator, as in the paper
# Workload and steps between checkpoints -> the measured periods of a training.
PLAN = {("light", 10): 20, ("light", 2): 25}
QUICK = {("light", 2): 2}
ROUNDS = 4
PAPER = "PCcheck: OPT-1.3B, every 15, m instead of 2 m"
FIGURE = "![Throughput over the memory of captures](figures/concurrency.png)"


def measure(args: argparse.Namespace) -> Report:
    """A job for each workload and interval."""
    report = Report("concurrency", "What does less memory for captures cost?")
    rounds = 1 if args.quick else ROUNDS
    with jobs.places(args.folder) as (disk, _):
        for (name, every), periods in (QUICK if args.quick else PLAN).items():
            say(f"{name}, every {every}: {rounds} rounds of {len(MEMORY)} trainings ...")
            params = {"workload": name, "every": every, "periods": periods, "rounds": rounds, "memory": MEMORY}
            params["folder"] = str(jobs.empty(disk, "job"))
            (found,) = jobs.gather("concurrency_rank", params, 1, disk, 1500.0)
            for memory, one in zip(MEMORY, found, strict=True):
                row = report.row(workload=name, every=every, memory=memory, nbytes=one["bytes"], shard=one["shard"])
                row.labels["samples"] = one["samples"]
                row.add("rate", "1/s", one["rate"]).add("peak", "B", [one["peak"]])
    return report


def ratios(report: Report, row: Row) -> list[float]:
    """Of each round: the rate over that with ``BASE`` shards of memory."""
    base = report.find(workload=row.labels["workload"], every=row.labels["every"], memory=BASE)
    return [one / two for one, two in zip(row.samples("rate"), base.samples("rate"), strict=True)]


def tables(report: Report) -> str:
    """A line for each workload, interval and memory."""
    lines: list[list[Any]] = []
    for row in report.rows:
        found = ratios(report, row)
        low, high = interval(found)
        ratio = "1" if row.labels["memory"] == BASE else f"{Row({}).add('ratio', '', found).median('ratio'):.3f}"
        within = "" if row.labels["memory"] == BASE else f" ({low:.3f}..{high:.3f})"
        lines.append(
            [
                row.labels["workload"],
                row.labels["every"],
                f"{row.labels['memory']:g}",
                f"{row.labels['nbytes'] / 1e6:.0f}",
                f"{row.median('peak') / 1e6:.0f}",
                f"{row.median('rate'):.2f}",
                ratio + within,
            ]
        )
    lines.append([PAPER, 15, "1", "-", "-", "-", "0.93 at least"])
    head = [
        "workload",
        "every",
        "memory, shards",
        "memory, MB",
        "peak, MB",
        "steps/s",
        f"rate over that of {BASE:g} shards (95 %)",
    ]
    return "\n\n".join([table(head, lines), FIGURE])


def draw(report: Report, path: Path) -> None:
    """The ratios over the memory."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.6))
    for name, every in dict.fromkeys((row.labels["workload"], row.labels["every"]) for row in report.rows):
        rows = [row for row in report.rows if (row.labels["workload"], row.labels["every"]) == (name, every)]
        found = [ratios(report, row) for row in rows]
        middle = [Row({}).add("ratio", "", one).median("ratio") for one in found]
        axes.plot([row.labels["memory"] for row in rows], middle, "o-", label=f"{name}, every {every}")
    axes.axhline(0.93, color="grey", linestyle="--", linewidth=1)
    axes.set_xlabel("memory of captures, shards")
    axes.set_ylabel(f"throughput over that of {BASE:g} shards")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    run("concurrency", __doc__ or "", measure, tables, draw)
