"""The part of ``benchmarks.goodput`` that measures the tuned interval. A training has the setting and the interval that ``deepfreeze tune``
chose for a job that is killed as often as the trace says. Its goodput is shown as a part of the bound, and beside that of CheckFreq's
policy at the same interval. This part has many rounds, because a goal is judged by it.

A budget of 3 % that is used up leaves 0.971 of the bound, and steps that a kill loses come on top of that. So the tuned program's
``Budget`` is told the mean time between two events of the trace, and takes fewer checkpoints where that makes more useful steps.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks import goodput_ours as ours
from benchmarks.concurrency_rows import cell, ratios
from benchmarks.goodput_ours import CHECKFREQ, TUNED
from benchmarks.goodput_trace import Trace
from benchmarks.goodput_tuned import tuned
from benchmarks.report import Row, span, table

STEPS, INTERVALS, ROUNDS = 30, 3, 9  # steps of a training, and intervals in it, at least


def measure(quick: bool, disk: Path, trace: Trace) -> list[Row]:
    """All rows; none for ``quick``, which has no tuner."""
    rows = []
    for workload in () if quick else ours.WORKLOADS:
        choice = tuned(workload, disk, trace.mtbf)
        loads = ours.loading(workload, quick, disk)
        asked = {
            name: one for name, one in ours.settings(choice.interval, choice).items() if name in (CHECKFREQ, TUNED)
        }
        found = ours.trainings(workload, choice.interval, max(STEPS, INTERVALS * choice.interval), ROUNDS, asked, disk)
        rows += ours.rows_of(ours.Replays(workload, loads, trace), {choice.interval: found}, choice)
    return rows


def tables(rows: list[Row]) -> str:
    """A line for each workload."""
    lines = []
    for row in (one for one in rows if one.labels["policy"] == TUNED):
        workload, every = row.labels["workload"], row.labels["every"]
        over = ratios(row, ours.find(rows, workload, CHECKFREQ, every), "goodput")
        what = [
            workload,
            ours.policy(row),
            every,
            len(over),
            f"{row.median('plain') * 1e3:.0f}",
            cell(row.samples("slowdown")),
        ]
        what += [span(row, "commit", 1e3, 0), f"{row.median('load'):.1f}", f"{row.median('goodput'):.3f}"]
        lines.append([*what, cell(row.samples("of the bound")), cell(over)])
    head = [
        "workload",
        "policy",
        "every",
        "rounds",
        "plain step, ms",
        "step over plain (95 %)",
        "commit, ms",
        "load, s",
    ]
    return table([*head, "goodput, steps/s", "of the bound (95 %)", "over CheckFreq (95 %)"], lines)
