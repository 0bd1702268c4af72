"""The cost of a checkpoint every 10 steps for ResNet-50 and NT3, period by period. This part of ``benchmarks.overhead`` has enough periods
to tell about a percent.

A period is a step that a checkpoint captures and the steps after it, up to the next such step. One training takes turns: as many steps
without checkpoints, a period, and so on (``overhead_turns_rank``). A period is compared in two ways:

slowdown, CPU time: with the turns without checkpoints just before and after it. CPU time is all of the process's. A checkpoint that is not
committed at the end of its period is waited for, and the wait is a part of the period.
share of the cores: the CPU time of the process beyond that of the other steps of the same period, over its cores and over the period.
neighbours: the captured step and the two after it with the other steps of the same period, by which time the checkpoint is committed.
A machine that changes its speed from minute to minute changes both alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.report import Report, Row, interval, table

SHARE = "share of the cores"
AFTERWARDS = ("captured step", "next step", "the one after")


@dataclass(frozen=True)
class Plan:
    """``periods`` of ``every`` steps in each of ``rounds`` processes."""

    workload: str = "resnet50"
    every: int = 10
    periods: int = 16
    rounds: int = 2


PLANS = (Plan(rounds=4), Plan("nt3"))
QUICK = Plan("light", 5, 3, 1)


def add(report: Report, found: list[dict[str, Any]], plan: Plan) -> None:
    """The row of a job on one rank; ``found``: the measurements of each round's process."""
    made = report.row(workload=plan.workload, ranks=1, every=plan.every)
    seconds = [_periods(one["seconds"]) for one in found]
    process = [_periods(one["process"]) for one in found]
    size = found[0]["nbytes"] / 1e9
    made.add("iteration", "s", np.concatenate([_plain(one["seconds"]) for one in found]).tolist())
    for name, of in (("slowdown", "seconds"), ("CPU time", "process")):
        made.add(name, "", np.concatenate([_periods(one[of]).mean(axis=1) / _plain(one[of]) for one in found]).tolist())
    made.add("engine's CPU", "s/GB", [one["cpu"] / (plan.periods * size) for one in found])
    for n, name in enumerate(AFTERWARDS):
        made.add(name, "s", np.concatenate([each[:, n] - _middle(each) for each in seconds]).tolist())
    made.add(
        "neighbours", "", np.concatenate([1 + _extra(each) / (plan.every * _middle(each)) for each in seconds]).tolist()
    )
    made.add("CPU of a checkpoint", "s/GB", np.concatenate([_extra(each) / size for each in process]).tolist())
    cores = report.machine["cores"]
    shares = [_extra(used) / (cores * plan.every * _middle(each)) for used, each in zip(process, seconds, strict=True)]
    made.add(SHARE, "", np.concatenate(shares).tolist())


def _periods(turns: list[list[float]]) -> np.ndarray:
    """(periods, every): the steps of every second turn."""
    return np.array(turns)[1::2]


def _plain(turns: list[list[float]]) -> np.ndarray:
    """Of each period: the mean step of the turns without checkpoints just before and after it."""
    plain = np.array(turns)[::2].mean(axis=1)
    return (plain[:-1] + plain[1:]) / 2


def _middle(periods: np.ndarray) -> np.ndarray:
    """Of each period: the median of the steps that a checkpoint no longer slows down."""
    return np.median(periods[:, len(AFTERWARDS) :], axis=1)


def _extra(periods: np.ndarray) -> np.ndarray:
    """Of each period: by how much the captured step and those after it are longer, together."""
    return (periods[:, : len(AFTERWARDS)] - _middle(periods)[:, None]).sum(axis=1)


def rows(report: Report) -> list[Row]:
    """The rows whose periods have been compared one by one."""
    return [row for row in report.rows if "neighbours" in row.values]


def row(report: Report, workload: str) -> Row | None:
    """The row of a workload; None if it was not measured."""
    return next((one for one in rows(report) if one.labels["workload"] == workload), None)


def percent(row: Row, name: str) -> str:
    """A ratio as what it is above 1: the median, with its 95 % interval."""
    low, high = interval(row.samples(name))
    return f"{row.median(name) - 1:+.1%} ({low - 1:+.1%}..{high - 1:+.1%})"


def within(row: Row, name: str, scale: float = 1.0, digits: int = 1) -> str:
    """The median of a row's value, with its 95 % interval."""
    low, high = interval(row.samples(name))
    return f"{row.median(name) * scale:.{digits}f} ({low * scale:.{digits}f}..{high * scale:.{digits}f})"


def tables(report: Report) -> str:
    """A line for each row; "" if there is none."""
    lines = [
        [row.labels["workload"], row.labels["every"], len(row.samples("slowdown"))]
        + [percent(row, name) for name in ("slowdown", "neighbours", "CPU time")]
        + [within(row, name, 1e3) for name in AFTERWARDS]
        + [within(row, "CPU of a checkpoint", 1, 2)]
        + [f"{row.median(SHARE):.1%}" if SHARE in row.values else "-"]
        for row in rows(report)
    ]
    header = ["workload", "every", "periods", "slowdown", "neighbours", "CPU time"]
    header += [*(f"{name}, extra ms" for name in AFTERWARDS), "CPU of a checkpoint, s/GB", SHARE]
    return table(header, lines) if lines else ""
