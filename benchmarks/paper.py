"""The experiment of the DeepFreeze paper (CCGrid 2020), weights only: what does a checkpoint cost, by four ways to take it?

keras-default: rank 0, model.save_weights() (HDF5) to the external store. veloc-single: rank 0, get_weights(), then our bindings.
veloc-sharded: every rank fetches the weights as numpy arrays outside the graph and saves its part by our bindings. veloc-opt:
deepfreeze.Checkpoint(wait_for="local"), slices taken in the graph. The last three block until node-local storage, a
directory on disk, has the data, as the paper's do; "captured", the fifth, is deepfreeze.Checkpoint as it comes, which does not.

All five take turns in one training (real, under Horovod), checkpoint i by approach i mod 5, each round beginning with another
one; the first of each is not counted. So the ops of our capture are in the graph all the time, and switched off where it is
another one's turn. The step after a checkpoint's next one begins when nothing of it is going on any more. With two
ranks, ResNet-50 is then trained with our other placement, and with the paper's slicing along the largest axis. (NT3 is one big
tensor: they would all cut it in the same two halves; with one rank there is nothing to place.) On two ranks NT3's tensors are
trained as "light", under next to no computation: a step of NT3 itself takes more than 3 s there, which would hide what it costs.

preparation: from the checkpoint's begin until the data is ready to be written. blocking: until training goes on; mean over
ranks, of which one that takes no part counts as 0. overhead: mean of the checkpoint's iteration and the next one, each
with its callbacks, minus the plain iterations just before and after them; mean over ranks. In CPU time: the same by the CPU
seconds of the rank's process, and with those of what goes on in the background until all of it is over. Medians over as many
checkpoints as the paper took, with the median's 95 % interval; an overhead whose interval reaches zero is "within noise".

Blocking phases are also measured over 1, 2, 4 and 8 nodes, by rank processes without TensorFlow (benchmarks/paper_nodes.py).
--long (`make bench-paper`, for a machine that is quiet for two hours): 15 iterations between checkpoints as in the paper, and
twice as many checkpoints.
"""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path
from typing import Any

from benchmarks import jobs, paper_nodes
from benchmarks.paper_figure import draw
from benchmarks.paper_tables import METRICS, SLOWEST, tables
from benchmarks.report import Report, run, say

APPROACHES = ("keras-default", "veloc-single", "veloc-sharded", "veloc-opt", "captured")
VARIANTS = ("placement contiguous", "largest axis")
# (workload, ranks): iterations between checkpoints, checkpoints that count. As many as the paper took of 600 MB and of 100 MB; its 15
# iterations where there is time for them. A checkpoint is compared with the plain iterations around it, which are two at least.
PLAN = {
    ("resnet50", 1): (15, 5),
    ("resnet50", 2): (4, 5),
    ("nt3", 1): (4, 8),
    ("light", 2): (4, 8),
}
NODES = {"nt3": 8, "resnet50": 5}  # checkpoints
LONG_EVERY, LONG_TIMES = 15, 2
SLOWEST_STEP = 8.0  # seconds; a job that takes longer than that for each of its steps hangs


def measure(args: argparse.Namespace) -> Report:
    """Runs one job for each workload and number of ranks, and then the rank processes that stand for nodes."""
    report = Report("paper", "What does a checkpoint cost training, by the approaches of the DeepFreeze paper?")
    plan = (
        {("light", 1): (4, 2)}
        if args.quick
        else {key: _longer(args, *PLAN[key]) for key in PLAN if key[0] in args.workloads}
    )
    report.settings["every"] = {f"{name}, ranks: {ranks}": every for (name, ranks), (every, _) in plan.items()}
    with jobs.places(args.folder) as (disk, _):
        for (name, ranks), (every, count) in plan.items():
            variants = list(VARIANTS) if (name, ranks) == ("resnet50", 2) else []
            say(f"{name} on {ranks} rank{'s' * (ranks > 1)} ...")
            params = {
                "workload": name,
                "every": every,
                "samples": min(args.samples, count),
                "variants": variants,
                "places": _places(jobs.empty(disk, "job")),
            }
            steps = every * params["samples"] * (len(APPROACHES) + len(variants))
            found = jobs.gather("paper_rank", params, ranks, disk, timeout=600 + SLOWEST_STEP * steps)
            for approach in (*APPROACHES, *variants):
                _add(report, found, name, ranks, approach)
        for name in ["resnet50"] if args.quick else [name for name in NODES if name in args.workloads]:
            nodes = (1, 2) if args.quick else paper_nodes.NODES
            paper_nodes.measure(report, name, min(args.samples, _longer(args, 0, NODES[name])[1]), disk, nodes)
    return report


def _longer(args: argparse.Namespace, every: int, count: int) -> tuple[int, int]:
    return (LONG_EVERY, LONG_TIMES * count) if args.long else (every, count)


def _places(folder: Path) -> dict[str, Any]:
    """Where everything goes; made here, so that the ranks need not agree."""

    def raw(name: str) -> dict[str, str]:
        return {
            "run": str(jobs.empty(folder, f"run-{name}")),
            "local": str(jobs.empty(folder, f"local-{name}")),
            "run_id": secrets.token_hex(16),
            "attempt": secrets.token_hex(16),
        }

    plain = {name: str(jobs.empty(folder, name)) for name in ("external", "local")}
    return {**plain, **{name: raw(name) for name in ("single", "sharded", "largest")}}


def _add(report: Report, found: list[list[dict[str, Any]]], name: str, ranks: int, approach: str) -> None:
    """One row: each sample is a checkpoint's mean over ranks."""
    checkpoints = list(zip(*([one for one in rank if one["approach"] == approach] for rank in found), strict=True))
    row = report.row(workload=name, ranks=ranks, approach=approach)
    for metric in METRICS:
        values = [[one[metric] for one in checkpoint] for checkpoint in checkpoints]
        row.add(metric, "s", [sum(each) / ranks for each in values if None not in each])
    row.add(SLOWEST, "s", [max(one["blocking"] for one in checkpoint) for checkpoint in checkpoints])
    row.add("iteration", "s", [max(one["baseline"] for one in checkpoint) for checkpoint in checkpoints])


def options(parser: argparse.ArgumentParser) -> None:
    """What can be left out."""
    names = sorted({name for name, _ in PLAN})
    parser.add_argument("--workloads", nargs="+", default=names, choices=names, help="(default: all)")
    parser.add_argument("--long", action="store_true", help="for a machine that is quiet for two hours, see above")
    # No fewer than the plan has.
    parser.set_defaults(samples=LONG_TIMES * max(count for _, count in PLAN.values()))


if __name__ == "__main__":
    run("paper", __doc__, measure, tables, draw, options)
