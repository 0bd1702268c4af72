"""Does ``Auto`` keep its promise when another job writes to the same disk? python -m benchmarks.interval --help

As in Table 5 of CheckFreq (FAST 2021): a training with ``Auto(overhead=p)``, alone; then a second job writes to the same disk, and the
training goes on, once with the interval that was right alone (static), and once with ``Auto``, which knows its profile and adapts.
``Engine(uncommitted=1)``, the local tier is in memory. The second job has more writers until the static interval costs 2 p or more. If
the most writers don't reach that, the table says so.

A training has several parts. Before, between and after them the same process takes steps without checkpoints, beside the same writers:
the plain steps of a part are those right before and right after it, so that a machine that becomes slower counts less. overhead: the mean
step of all whole periods of the last parts, when Auto has come to an interval, over the mean plain step, minus 1. A period is a captured
step and the steps after it, up to the next captured one, callbacks included. The 95 % interval is the bootstrap's, over periods and plain
steps.
checkpoints per epoch: as in Table 4, with the interval at 3.5 %. An epoch has 1000 steps here.
stall: as in Table 3, by ``benchmarks.stall_rank``: how much longer training takes for a checkpoint, by three ways: training waits until the
checkpoint is committed; it waits for a copy that is taken between two executions of the train function; the copy is taken in the graph.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

from benchmarks import checkfreq_published, jobs
from benchmarks.interval_figure import draw
from benchmarks.interval_periods import Course, overhead, overhead_within
from benchmarks.report import Report, Row, run, say, span, table

EPOCH = 1000  # steps of an epoch in which checkpoints are counted, and of which a hundredth may be profiled
GOALS = (0.035, 0.05)
PATIENCE = 3000.0  # seconds that the comparison of a workload may take
WORKLOADS = ("resnet50", "nt3")
# Seconds of a part of each training, how many parts each case has, and how many of them count; ``interval_rank`` says what they are for.
SECONDS = {"auto": 18.0, "static": 12.0, "plain": 9.0}
SECONDS_QUICK = {"auto": 6.0, "static": 5.0, "plain": 1.0}
PARTS = {"alone": 7, "static": 2, "auto": 9}
PARTS_QUICK = {"alone": 1, "static": 1, "auto": 1}
# How many of a case's last parts count. A period beside the second job takes several seconds, so its case needs more parts for as many.
SETTLED = {"alone": 3, "static": 2, "auto": 6}
LEVELS, LEVELS_QUICK = [16, 48, 144], [16]  # threads of the second job
# Way -> what it is, and what ``stall_rank`` is told. The name is the paper's in Table 3.
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "synchronous": ("waits for the commit", {"options": {"wait_for": "external"}}),
    "persist overlapped": ("captures between two executions", {"options": {}, "between": True}),
    "snapshot and persist overlapped": ("captures in the graph", {"options": {}}),
}
EVERY = {"resnet50": 8, "nt3": 4, "light": 8}  # steps between the checkpoints of Table 3
CASES = ("alone", "static", "auto")
FIGURE = "![Interval and overhead over the steps](figures/interval.png)"


def measure(args: argparse.Namespace) -> Report:
    """For each workload: a job for the comparison, and a job for each way."""
    report = Report("interval", "Does Auto keep the overhead where it was asked to?", {"epoch": EPOCH})
    names = ("light",) if args.quick else args.workloads
    seconds, levels = (SECONDS_QUICK, LEVELS_QUICK) if args.quick else (SECONDS, LEVELS)
    parts = PARTS_QUICK if args.quick else PARTS
    with jobs.places(args.folder) as (disk, memory):
        for name in names:
            say(f"{name}: with Auto and with a static interval ...")
            params = {"workload": name, "goals": GOALS[:1] if args.quick else GOALS, "epoch": EPOCH}
            params |= {"folder": str(jobs.empty(disk, "job")), "slots": str(jobs.empty(memory, "slots"))}
            params |= {"seconds": seconds, "parts": parts, "levels": levels}
            (found,) = jobs.gather("interval_rank", params, 1, disk, PATIENCE)
            for goal, one in zip(GOALS, found, strict=False):
                add(report, name, goal, one)
            for way, (what, more) in WAYS.items():
                say(f"{name}: a checkpoint that {what} ...")
                params = {"measure": "checkpoints", "workload": name, "every": EVERY[name], "samples": args.samples}
                params |= {"folder": str(jobs.empty(disk, "job")), "distributed": False, "save_weights": False, **more}
                params["options"] = {**more["options"], "local": str(jobs.empty(memory, "slots"))}
                (stall,) = jobs.gather("stall_rank", params, 1, disk)
                row = report.row(kind="stall", workload=name, way=way, nbytes=stall["nbytes"])
                row.add("stall", "s", stall["stall"]).add("blocking", "s", stall["blocking"])
                row.add("plain", "s", stall["plain"])
    return report


def add(report: Report, workload: str, goal: float, found: dict[str, Any]) -> None:
    """The rows of one comparison: what each case cost, and what the profile did."""
    courses = {case: [Course(**course) for course in parts] for case, parts in found["courses"].items()}
    decisions, first = found["decisions"], courses["auto"][0].begin
    for case in CASES:
        beside = case != "alone"
        parts = courses[case]
        settled, begin = parts[-SETTLED[case] :], parts[0].begin
        labels = {"workload": workload, "goal": goal, "case": case, "writers": found["writers"] if beside else 0}
        row = report.row(kind="overhead", **labels, every=found["every"], nbytes=found["nbytes"])
        if case != "static":
            row.labels["decisions"] = [one for one in decisions if (one[0] >= first) == beside]
            row.add("Auto's own", "", [one for one in [found["told"][case]] if one is not None])
        periods = [period for part in parts for period in part.periods()]
        row.add("plain", "s", [second for part in settled for second in part.plain])
        row.add("step", "steps", [period.step - begin for period in periods])
        row.add("k", "steps", [period.k for period in periods])
        row.add("of a period", "", [cost for part in parts for cost in part.costs()])
        row.add("settled", "", [cost for part in settled for cost in part.costs()])
        row.add("settled k", "steps", [period.k for part in settled for period in part.periods()])
        row.add("overhead", "", [overhead(settled)]).add("within", "", overhead_within(settled))
    part, profiled = courses["alone"][0], decisions[0][0]
    plain = statistics.fmean(part.plain)
    row = report.row(kind="profile", workload=workload, goal=goal, until=profiled - part.begin)
    row.add("extra", "s", [part.extra(profiled)]).add("plain", "s", [plain])
    row.add("of an epoch", "", [part.extra(profiled) / (EPOCH * plain)])


def settled_k(row: Row) -> int:
    """The interval of the last parts of a training: the one that most of their steps were in."""
    steps: dict[float, float] = {}
    for k in row.samples("settled k"):
        steps[k] = steps.get(k, 0.0) + k
    return int(max(steps, key=lambda k: steps[k]))


def rows(report: Report, kind: str) -> list[Row]:
    """The rows of one kind, in order."""
    return [row for row in report.rows if row.labels["kind"] == kind]


def tables(report: Report) -> str:
    """Tables 5, 4 and 3 of the paper, each with ours first."""
    return "\n\n".join([_beside(report), _profiles(report), _per_epoch(report), _stalls(report), FIGURE])


def _beside(report: Report) -> str:
    lines: list[Sequence[Any]] = []
    for row in rows(report, "overhead"):
        low, high = row.samples("within")
        found = f"{row.median('overhead'):+.1%} ({low:+.1%}..{high:+.1%})"
        what = _case(row.labels["case"]) + _too_weak(row)
        own = f"{row.median(name):+.1%}" if (name := "Auto's own") in row.values else "-"
        lines.append(
            [
                row.labels["workload"],
                f"{row.labels['goal']:.1%}",
                what,
                row.labels["writers"],
                settled_k(row),
                len(row.samples("settled")),
                found,
                own,
            ]
        )
    for setting in ("alone", "second job on the disk; static", "second job on the disk; adaptive"):
        cost, k = (checkfreq_published.value("Table 5", "VGG16", setting, what) for what in ("overhead", "interval"))
        lines.append(["CheckFreq: VGG16", "5.0%", setting, "-", f"{k:.0f}", "-", f"+{cost:.1f}%", "-"])
    head = ["workload", "p", "case", "writers", "k", "periods", "overhead (95 %)", "as Auto measures it"]
    return table(head, lines)


def _case(case: str) -> str:
    return {"alone": "alone", "static": "second job; static", "auto": "second job; Auto"}[case]


def _too_weak(row: Row) -> str:
    """Says so where the second job did not disturb the static interval enough."""
    if row.labels["case"] == "static" and row.median("overhead") < 2 * row.labels["goal"]:
        return ", below 2 p with the most writers"
    return ""


def _profiles(report: Report) -> str:
    lines = [
        [
            row.labels["workload"],
            f"{row.labels['goal']:.1%}",
            row.labels["until"],
            span(row, "extra", 1e3, 0),
            f"{row.median('of an epoch'):+.2%}",
        ]
        for row in rows(report, "profile")
    ]
    return table(["workload", "p", "steps until the profile ends", "extra ms until then", f"of {EPOCH} steps"], lines)


def _per_epoch(report: Report) -> str:
    lines = []
    for row in rows(report, "overhead"):
        if row.labels["case"] == "alone" and row.labels["goal"] == GOALS[0]:
            k = settled_k(row)
            what = [row.labels["workload"], f"{row.labels['nbytes'] / 1e6:.0f}", f"{EPOCH} steps"]
            lines.append([*what, f"{EPOCH / k:.0f}"])
    published = checkfreq_published.lines("Table 4")
    for model in dict.fromkeys(line["model"] for line in published):
        size, count = (
            next(one["value"] for one in published if (one["model"], one["quantity"]) == (model, quantity))
            for quantity in ("checkpoint size", "checkpoints per epoch")
        )
        lines.append([f"CheckFreq: {model}", size, "its data set's", count])
    return table(["workload", "MB", "epoch", "checkpoints per epoch at 3.5 %"], lines)


def _stalls(report: Report) -> str:
    lines = []
    found = rows(report, "stall")
    for name in dict.fromkeys(row.labels["workload"] for row in found):
        by_way = {row.labels["way"]: row for row in found if row.labels["workload"] == name}
        whole = by_way["synchronous"].median("stall")
        for way, row in by_way.items():
            stall = row.median("stall")
            lines.append([name, WAYS[way][0], span(row, "stall", 1e3, 0), f"{stall / whole:.2f}"])
    for setting in ("V100+SSD", "1080Ti+HDD"):
        seconds = [checkfreq_published.value("Table 3", "VGG16", setting, f"checkpoint stall: {way}") for way in WAYS]
        for way, one in zip(WAYS, seconds, strict=True):
            lines.append([f"CheckFreq: VGG16, {setting}", way, f"{one * 1e3:.0f}", f"{one / seconds[0]:.2f}"])
    return table(["workload", "a checkpoint", "stall, ms", "of the first way"], lines)


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the command line's options, which leave workloads out."""
    parser.add_argument("--workloads", nargs="+", default=WORKLOADS, choices=WORKLOADS, help="(default: all)")


if __name__ == "__main__":
    run("interval", __doc__ or "", measure, tables, draw, options)
