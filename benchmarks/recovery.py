"""What does a kill cost: how much work is lost, and how long is the way back? python -m benchmarks.recovery --help

A training of one process is killed (SIGKILL) at random moments and started again, 60 times for each model. It saves every k steps, to
the disk alone, with ``Engine(uncommitted=1)``; the lost work is then at most two intervals, 2k steps (CheckFreq, FAST 2021, section 4.2).
An epoch is a multiple of k, so the checkpoints at the epochs' ends are among those that are saved. Each kill is judged twice: by the newest
checkpoint, and by the newest one of an epoch's end, which is all that a training with ``every="epoch"`` would have. Restarts take turns
as well. For every second one all checkpoints after the last epoch's end are removed first.

lost work: finished steps after the checkpoint; and seconds, which are these steps times the mean step, and what had passed of the step
under way. The kill comes at a random moment of as many seconds as an epoch takes, so every part of an epoch is as likely as another.
restart: from the start of the process until the first new step is done. recovery: restart and lost work, the time until the training is
where it was. Table 6 of CheckFreq has its mean. With checkpoints at epochs' ends it follows from the length of an epoch, which is
a choice here and far shorter than one over ImageNet: its ratio says nothing about other lengths.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from benchmarks import checkfreq_published, jobs
from benchmarks.recovery_kills import Killing, Outcome, Plan
from benchmarks.recovery_life import PHASES
from benchmarks.report import Report, Row, interval, run, say, table

SEED = 6
KILLS = 60
# As short as an interval and an epoch may be for the time that there is: a life takes half an epoch on average.
PLANS = (Plan("resnet50", 5, 25, KILLS), Plan("nt3", 2, 10, KILLS))
QUICK = (Plan("light", 5, 20, 6),)
POLICIES = ("steps", "epoch")  # whose checkpoints: all, or those of epochs' ends
FIGURE = "![Lost work over all kills](figures/recovery.png)"


def measure(args: argparse.Namespace) -> Report:
    """Kills each training of the plan."""
    report = Report("recovery", "What does a kill cost?", {"seed": SEED})
    for plan in QUICK if args.quick else PLANS:
        if args.quick or plan.workload in args.workloads:
            say(f"{plan.workload}: {plan.kills} kills ...")
            with jobs.places(args.folder) as (disk, _):
                add(report, plan, Killing(plan, disk, SEED).all())
    return report


def add(report: Report, plan: Plan, found: Outcome) -> None:
    """A row for each policy."""
    for policy in POLICIES:
        lost, restarts = found.lost[policy], found.restarts[policy]
        row = report.row(workload=plan.workload, policy=policy, every=plan.every, epoch=plan.epoch, bound=plan.bound)
        row.add("lost steps", "steps", [one.steps for one in lost]).add("lost", "s", [one.seconds for one in lost])
        for phase in PHASES:
            row.add(phase, "s", [one[phase] for one in restarts])
        row.add("restart", "s", [sum(one.values()) for one in restarts]).add("step", "s", found.step)


def recovery(row: Row) -> float:
    """Mean seconds from a kill until the training is where it was."""
    return statistics.fmean(row.samples("restart")) + statistics.fmean(row.samples("lost"))


def workloads(report: Report) -> list[str]:
    """The names of the measured workloads, in the order of the rows."""
    return list(dict.fromkeys(row.labels["workload"] for row in report.rows))


def tables(report: Report) -> str:
    """Lost work, restarts, and the recovery beside the paper's."""
    lost = [
        [
            row.labels["workload"],
            _saves(row),
            len(row.samples("lost steps")),
            f"{statistics.fmean(row.samples('step')) * 1e3:.0f}",
            _mean(row, "lost steps"),
            row.labels["bound"] if row.labels["policy"] == "steps" else "-",
            f"{max(row.samples('lost steps')) / row.labels['bound']:.2f}x",
            _mean(row, "lost"),
        ]
        for row in report.rows
    ]
    head = ["workload", "a checkpoint", "kills", "mean step, ms", "lost steps, mean (worst)", "bound, 2k steps"]
    head += ["worst / 2k", "lost, s, mean (worst)"]
    restarts = [
        [row.labels["workload"], _saves(row), len(row.samples("restart"))]
        + [_mean(row, name) for name in (*PHASES, "restart")]
        for row in report.rows
    ]
    phases = [f"{name}, s" for name in (*PHASES, "restart")]
    return "\n\n".join(
        [
            table([*head], lost),
            "Mean (worst):\n\n" + table(["workload", "from a checkpoint", "restarts", *phases], restarts),
            "In seconds, with the measured l (restart) and t (step), their means and what follows from their 95 % intervals:\n\n"
            + table(
                ["workload", "a checkpoint", "l, s", "t, ms", "bound l + 2k t, s", "worst kill, s", "kills within"],
                [_within(row) for row in report.rows if row.labels["policy"] == "steps"],
            ),
            table(["", "epochs' ends, s", "every k steps, s", "ratio"], [*_ours(report), *_published()]),
            FIGURE,
        ]
    )


def bound(row: Row) -> tuple[float, float, float]:
    """The most seconds that a kill may cost, l + 2k t (CheckFreq, section 4.2), with the measured means of l and t, between the values with
    the lower and the upper ends of their 95 % intervals."""
    load, step = row.samples("restart"), row.samples("step")
    ends = zip(interval(load, "mean"), interval(step, "mean"), strict=True)
    low, high = (one + row.labels["bound"] * other for one, other in ends)
    return low, statistics.fmean(load) + row.labels["bound"] * statistics.fmean(step), high


def _within(row: Row) -> list[str]:
    """The line of a row: its bound in seconds, and how many kills cost no more. A kill costs a mean restart and the seconds that it
    lost."""
    load, low_high = statistics.fmean(row.samples("restart")), interval(row.samples("restart"), "mean")
    step, around = statistics.fmean(row.samples("step")), interval(row.samples("step"), "mean")
    low, middle, high = bound(row)
    costs = [load + one for one in row.samples("lost")]
    return [
        row.labels["workload"],
        _saves(row),
        f"{load:.2f} ({low_high[0]:.2f}..{low_high[1]:.2f})",
        f"{step * 1e3:.0f} ({around[0] * 1e3:.0f}..{around[1] * 1e3:.0f})",
        f"{middle:.2f} ({low:.2f}..{high:.2f})",
        f"{max(costs):.2f}",
        f"{sum(one <= high for one in costs)} of {len(costs)}",
    ]


def _ours(report: Report) -> list[list[str]]:
    lines = []
    for workload in workloads(report):
        steps, epoch = (report.find(workload=workload, policy=policy) for policy in POLICIES)
        what = f"{workload}, epochs of {epoch.labels['epoch']} steps"
        seconds = recovery(epoch), recovery(steps)
        lines.append([what, *(f"{one:.1f}" for one in seconds), f"{seconds[0] / seconds[1]:.1f}x"])
    return lines


def _published() -> list[list[str]]:
    """The paper's ResNet-50; its other models have no counterpart here."""
    lines = []
    for source, setting in (("Table 6a", "1 V100"), ("Table 6b", "8x1080Ti")):
        epoch, ours = (
            checkfreq_published.value(source, "ResNet50", setting, quantity)
            for quantity in (checkfreq_published.EPOCHS, checkfreq_published.OURS)
        )
        what = f"CheckFreq, {source}: ResNet50 on {setting}, epochs of ImageNet"
        lines.append([what, f"{epoch:.0f}", f"{ours:.0f}", f"{epoch / ours:.1f}x"])
    return lines


def _saves(row: Row) -> str:
    """When the row's checkpoints are taken."""
    if row.labels["policy"] == "steps":
        return f"every {row.labels['every']} steps"
    return f"at the end of each epoch ({row.labels['epoch']} steps)"


def _mean(row: Row, name: str) -> str:
    samples = row.samples(name)
    return f"{statistics.fmean(samples):.1f} ({max(samples):.{0 if name == 'lost steps' else 1}f})"


def draw(report: Report, path: Path) -> None:
    """The part of all kills that lost at most so many steps, with the bound."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = workloads(report)
    figure, panels = pyplot.subplots(
        1, len(names), figsize=(4.5 * len(names), 3.6), layout="constrained", squeeze=False
    )
    for axes, workload in zip(panels[0], names, strict=True):
        for policy in POLICIES:
            row = report.find(workload=workload, policy=policy)
            axes.ecdf(row.samples("lost steps"), label=_saves(row))
        axes.axvline(row.labels["bound"], color="black", linewidth=0.8, linestyle="--", label="2k steps")
        axes.set(title=workload, xlabel="lost steps", ylabel="part of all kills", xlim=(0, None))
        axes.legend(fontsize=8, frameon=False, loc="lower right")
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the command line's options, which leave workloads out."""
    names = [plan.workload for plan in PLANS]
    parser.add_argument("--workloads", nargs="+", default=names, choices=names, help="(default: all)")


if __name__ == "__main__":
    run("recovery", __doc__ or "", measure, tables, draw, options)
