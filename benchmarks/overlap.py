"""How often is the top layer captured before back-propagation has ended? python -m benchmarks.overlap --help

A stack of 10 equal dense layers on 2 ranks, every step captured, one round a step. When a layer's allreduce ends is Horovod's to
decide, cycle by cycle, so one round says little; that nothing else is waited for is read from the graph, by
tests/horovod/test_overlap.py.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import jobs, report
from benchmarks.report import Report, Row, interval, say, span, table

RANKS = 2
ROUNDS = 100


def measure(args: argparse.Namespace) -> Report:
    """One job; each of its ranks is a row."""
    found = Report("overlap", "How often is the top layer captured before back-propagation has ended?")
    rounds = 5 if args.quick else ROUNDS
    say(f"{rounds} captured steps on {RANKS} ranks")
    with jobs.places(args.folder) as (disk, _):
        ranks = jobs.gather("overlap_rank", {"rounds": rounds}, RANKS, disk)
    for rank, times in enumerate(ranks):
        row = found.row(rank=rank, rounds=rounds)
        row.add("top", "s", times["top"]).add("bottom", "s", times["bottom"])
        row.add("ahead", "s", [bottom - top for top, bottom in zip(times["top"], times["bottom"], strict=True)])
        row.add("interval", "s", interval(row.samples("ahead")))
    return found


def share(row: Row) -> float:
    """Of the rounds, those in which the top layer was captured first."""
    return sum(ahead > 0 for ahead in row.samples("ahead")) / len(row.samples("ahead"))


def tables(found: Report) -> str:
    """A line for each rank."""
    header = [
        "rank",
        "rounds",
        "captured first",
        "top layer captured, ms",
        "bottom gradient there, ms",
        "ahead, ms (95 %)",
    ]
    lines = []
    for row in found.rows:
        low, high = row.values["interval"]["min"] * 1e3, row.values["interval"]["max"] * 1e3
        ahead = f"{row.median('ahead') * 1e3:.1f} ({low:.1f}..{high:.1f})"
        first = f"{share(row) * 100:.0f} %"
        lines.append(
            [row.labels["rank"], row.labels["rounds"], first, span(row, "top", 1e3), span(row, "bottom", 1e3), ahead]
        )
    return table(header, lines)


def draw(found: Report, path: Path) -> None:
    """By how much the capture was ahead, as a distribution."""
    curves = {f"rank {row.labels['rank']}": [ahead * 1e3 for ahead in row.samples("ahead")] for row in found.rows}
    what = ("top layer's capture ahead of the bottom layer's gradient, ms", "part of the rounds")
    report.distributions(path, f"Capture during back-propagation, {len(found.rows)} ranks", what, curves, zero=True)


if __name__ == "__main__":
    report.run("overlap", __doc__ or "", measure, tables, draw)
