"""What do checkpoints every 1, 5, 15 or 50 steps cost a whole training, in time, CPU and memory?

Real trainings under Horovod (NT3 at its published size, ResNet-50), with the full state and everything else as it comes; the
local tier is in memory. Within one process, trainings without any checkpointing and with it alternate; one with it has a
block of steps for each interval, and each block begins when the engine has nothing left to do.

slowdown: seconds of a period (the steps up to a checkpoint and that step, callbacks included) over those of as many
steps of the trainings without, just before and after it; mean over ranks. Median of all periods, with a 95 % interval by the bootstrap.
engine's CPU: of the engine's own threads, for each GB saved, both tiers and the checksums together (the copy out of the
training's variables is TensorFlow's threads' and not in it). extra memory: the peak of resident memory, plus what the process
has not mapped of the slots on tmpfs, minus the peak of the training without; the bound is (in_flight + slots) x a rank's
bytes + 64 MB. Another training, which is not timed, has ``memory=`` of two and a half shards: the peak of many samples of what its captures
hold must not be more.

``benchmarks.overhead_periods`` says what is compared beyond that with a checkpoint every 10 steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import jobs, overhead_periods
from benchmarks.report import Report, Row, before, interval, run, say, span, table

# (workload, ranks): plain steps, (steps between checkpoints, periods) of each block, most rounds. As much as time allows.
PLAN: dict[tuple[str, int], tuple[int, list[tuple[int, int]], int]] = {
    ("resnet50", 1): (15, [(50, 1), (15, 2), (5, 2), (1, 8)], 2),
    ("nt3", 1): (6, [(50, 1), (15, 2), (5, 2), (1, 4)], 1),
}
# The parts of the benchmark: trainings with several intervals, and trainings with many periods of one interval.
TRAININGS, PERIODS = "trainings", "periods"
IN_FLIGHT, SLOTS, SPARE = 2, 2, 64e6  # what Checkpoint has if nothing else is asked for


def measure(args: argparse.Namespace) -> Report:
    """Runs a job for each workload and number of ranks, and a job for the periods. The rows of a part that ``--parts`` leaves out stay as
    they are in the JSON file, if this machine made it."""
    report = Report("overhead", "What do checkpoints cost a whole training?")
    stays = before(args, report, [TRAININGS, PERIODS])
    many_before = overhead_periods.rows(stays) if stays is not None else []
    dates = dict.fromkeys((TRAININGS, PERIODS), (stays or report).machine["date"])
    dates |= dict(stays.settings.get("dates", {})) if stays is not None else {}
    report.settings["dates"] = dates | dict.fromkeys(args.parts, report.machine["date"])
    if stays is not None and TRAININGS not in args.parts:
        report.rows += [row for row in stays.rows if row not in many_before]
    plan = {("light", 1): (6, [(5, 1), (1, 3)], 2)} if args.quick else PLAN
    with jobs.places(args.folder) as (disk, memory):

        def job(name: str, ranks: int, module: str = "overhead_rank", **params: Any) -> list[Any]:
            say(f"{name} on {ranks} rank{'s' * (ranks > 1)} ...")
            params |= {"folder": str(jobs.empty(disk, "job")), "slots": str(jobs.empty(memory, "slots"))}
            return jobs.gather(module, {"workload": name, **params}, ranks, disk)

        for (name, ranks), (plain, blocks, most) in plan.items():
            if TRAININGS in args.parts and (args.quick or name in args.workloads):
                found = job(name, ranks, plain=plain, blocks=blocks, rounds=min(args.samples, most), bounded=True)
                _add(report, found, name, ranks, blocks)
        for many in (overhead_periods.QUICK,) if args.quick else overhead_periods.PLANS:
            if PERIODS in args.parts and (args.quick or many.workload in args.workloads):
                turns = {"module": "overhead_turns_rank", "every": many.every, "periods": many.periods}
                rounds = [job(many.workload, 1, **turns)[0] for _ in range(many.rounds)]
                overhead_periods.add(report, rounds, many)
    if PERIODS not in args.parts:
        report.rows += many_before
    return report


def _add(
    report: Report, found: list[list[dict[str, Any]]], name: str, ranks: int, blocks: list[tuple[int, int]]
) -> None:
    """A row for the training without, and one for each interval."""
    rounds = list(zip(*found, strict=True))  # of each round: what each rank has found
    none = report.row(workload=name, ranks=ranks, every=None)
    none.add("iteration", "s", [float(np.mean([rank["plain"] for rank in each])) for each in rounds])
    none.add("extra memory", "B", [max(rank["extra"] for rank in each) for each in rounds])
    nbytes = max(rank["nbytes"] for rank in rounds[0])
    none.add("bytes of a rank", "B", [nbytes]).add("bound", "B", [(IN_FLIGHT + SLOTS) * nbytes + SPARE])
    for name_of, quantity in (("given", "memory given"), ("captures", "captures")):
        none.add(quantity, "B", [max(rank[name_of] for rank in rounds[-1])])
    none.labels["samples"] = min(rank["samples"] for rank in rounds[-1])
    at = 0
    for n, (every, periods) in enumerate(blocks):
        ratios = []
        for each in rounds:
            seconds = np.array([rank["with"][at : at + every * periods] for rank in each]).reshape(
                ranks, periods, every
            )
            plain = np.array([np.mean(rank["plain"]) for rank in each])
            ratios += (seconds.mean(axis=2) / plain[:, None]).mean(axis=0).tolist()
        cpu = [sum(rank["cpu"][n] for rank in each) for each in rounds]
        saved = [sum(rank["nbytes"] for rank in each) * periods / 1e9 for each in rounds]
        row = report.row(workload=name, ranks=ranks, every=every).add("slowdown", "", ratios)
        row.add("engine's CPU", "s/GB", [seconds / size for seconds, size in zip(cpu, saved, strict=True)])
        at += every * periods


def tables(report: Report) -> str:
    """Slowdowns, then what was compared period by period, then memory."""
    lines = []
    for row in sorted(report.rows, key=_order(report)):
        if row.labels["every"] is not None:
            low, high = interval(row.samples("slowdown"))
            middle = row.median("slowdown")
            plain = row if "iteration" in row.values else _without(report, row.labels["workload"], row.labels["ranks"])
            cost = f"{(middle - 1) * 100:+.1f} ({(low - 1) * 100:+.1f}..{(high - 1) * 100:+.1f})"
            step = f"{plain.median('iteration') * 1e3:.0f}"
            periods = len(row.samples("slowdown"))
            lines.append([*row.labels.values(), step, cost, periods, span(row, "engine's CPU", 1, 2)])
    header = [
        "workload",
        "ranks",
        "every",
        "plain iteration, ms",
        "slowdown, % (95 % interval)",
        "periods",
        "engine's CPU, s/GB",
    ]
    memory = [
        [row.labels["workload"], row.labels["ranks"]]
        + [span(row, quantity, 1e-6, 0) for quantity in ("bytes of a rank", "extra memory", "bound")]
        + [span(row, one, 1e-6, 0) if one in row.values else "-" for one in ("memory given", "captures")]
        for row in report.rows
        if row.labels["every"] is None
    ]
    header_of_memory = ["workload", "ranks", "a rank's checkpoint, MB", "peak extra memory, MB", "bound, MB"]
    header_of_memory += ["memory= of another training, MB", "peak of its captures, MB"]
    parts = [table(header, lines), overhead_periods.tables(report), table(header_of_memory, memory) if memory else ""]
    return "\n\n".join(filter(None, parts))


def _order(report: Report) -> Callable[[Row], tuple[int, float]]:
    """Workloads as they were measured, of each the longest interval first."""
    names = list(dict.fromkeys(row.labels["workload"] for row in report.rows))
    return lambda row: (names.index(row.labels["workload"]), -(row.labels["every"] or float("inf")))


def _without(report: Report, workload: str, ranks: int) -> Row:
    """The training without checkpoints."""
    return report.find(workload=workload, ranks=ranks, every=None)


def draw(report: Report, path: Path) -> None:
    """Slowdown over the interval, and memory beside its bound."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    jobs_of = list(dict.fromkeys((row.labels["workload"], row.labels["ranks"]) for row in report.rows))
    names = [f"{name}, {ranks} rank{'s' * (ranks > 1)}" for name, ranks in jobs_of]
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained", width_ratios=(3, 2))
    for (name, ranks), label in zip(jobs_of, names, strict=True):
        rows = [
            r for r in report.rows if (r.labels["workload"], r.labels["ranks"]) == (name, ranks) and r.labels["every"]
        ]
        rows.sort(key=lambda row: row.labels["every"])
        middle = np.array([row.median("slowdown") - 1 for row in rows]) * 100
        bounds = (np.array([interval(row.samples("slowdown")) for row in rows]).T - 1) * 100
        every = [row.labels["every"] for row in rows]
        left.errorbar(every, middle, [middle - bounds[0], bounds[1] - middle], marker="o", capsize=3, label=label)
    left.axhline(0, color="black", linewidth=0.8)
    left.axhline(1, color="grey", linewidth=0.8, linestyle=":")
    left.set_xscale("log")
    left.set_yscale("symlog", linthresh=10)
    left.set_xticks([1, 5, 10, 15, 50], ["1", "5", "10", "15", "50"])
    left.minorticks_off()
    left.set_xlabel("steps between checkpoints")
    left.set_ylabel("slowdown, % (dotted: 1 %)")
    left.legend(frameon=False, fontsize=8)
    none = [row for row in report.rows if row.labels["every"] is None]
    place = np.arange(len(none))
    right.bar(
        place - 0.2, [row.median("extra memory") / 1e6 for row in none], 0.4, color="#2b6ca3", label="peak, extra"
    )
    right.bar(place + 0.2, [row.median("bound") / 1e6 for row in none], 0.4, color="#c8c8c8", label="bound")
    right.set_xticks(place, [f"{row.labels['workload']}\n{row.labels['ranks']} rank" for row in none])
    right.set_ylabel("memory of a rank, MB")
    right.margins(y=0.25)
    right.legend(frameon=False, fontsize=8)
    for panel in (left, right):
        panel.grid(axis="y", alpha=0.3)
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def options(parser: argparse.ArgumentParser) -> None:
    """What can be left out."""
    names = sorted({name for name, _ in PLAN})
    parser.add_argument("--workloads", nargs="+", default=names, choices=names, help="(default: all)")
    parts = (TRAININGS, PERIODS)
    parser.add_argument("--parts", nargs="+", default=parts, choices=parts, help="(default: both)")


if __name__ == "__main__":
    run("overhead", __doc__, measure, tables, draw, options)
