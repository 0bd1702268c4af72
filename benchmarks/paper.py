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
with its callbacks, minus a plain iteration; mean over ranks. Medians over checkpoints, with min..max.
"""

from __future__ import annotations

import argparse
import secrets
from pathlib import Path
from typing import Any

from benchmarks import jobs
from benchmarks.paper_figure import draw
from benchmarks.report import Report, run, say, span, table

APPROACHES = ("keras-default", "veloc-single", "veloc-sharded", "veloc-opt", "captured")
VARIANTS = ("placement contiguous", "largest axis")
PUBLISHED = "published ratios not available offline"
# (workload, ranks): steps between checkpoints, most checkpoints that count. The paper's 15 steps where there is time for it: how
# many more plain steps lie between two checkpoints makes no difference to what is measured.
PLAN = {
    ("resnet50", 1): (15, 2),
    ("resnet50", 2): (2, 2),
    ("nt3", 1): (2, 2),
    ("light", 2): (2, 2),
}
METRICS = ("preparation", "blocking", "overhead")


def measure(args: argparse.Namespace) -> Report:
    """One job for each workload and number of ranks."""
    report = Report("paper", "What does a checkpoint cost training, by the approaches of the DeepFreeze paper?")
    report.settings["every"] = {f"{name}, ranks: {ranks}": every for (name, ranks), (every, _) in PLAN.items()}
    report.settings["published"] = PUBLISHED
    chosen = [("light", 1)] if args.quick else [key for key in PLAN if key[0] in args.workloads]
    with jobs.places(args.folder) as (disk, _):
        for name, ranks in chosen:
            every, most = (3, 2) if args.quick else PLAN[name, ranks]
            variants = list(VARIANTS) if (name, ranks) == ("resnet50", 2) else []
            say(f"{name} on {ranks} rank{'s' * (ranks > 1)} ...")
            folder = jobs.empty(disk, "job")
            params = {
                "workload": name,
                "every": every,
                "samples": min(args.samples, most),
                "variants": variants,
                "places": _places(folder),
            }
            found = jobs.gather("paper_rank", params, ranks, disk)
            for approach in (*APPROACHES, *variants):
                _add(report, found, name, ranks, approach)
    return report


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
    row.add("blocking, slowest rank", "s", [max(one["blocking"] for one in checkpoint) for checkpoint in checkpoints])
    row.add("iteration", "s", [max(one["baseline"] for one in checkpoint) for checkpoint in checkpoints])


def tables(report: Report) -> str:
    """Milliseconds."""
    lines = []
    for row in report.rows:
        keras = report.find(workload=row.labels["workload"], ranks=row.labels["ranks"], approach="keras-default")
        lines.append(
            [
                *row.labels.values(),
                f"{row.median('iteration') * 1e3:.0f}",
                *(span(row, metric, 1e3) for metric in (*METRICS, "blocking, slowest rank")),
                f"{keras.median('blocking') / row.median('blocking'):.1f}x",
            ]
        )
    header = ["workload", "ranks", "approach", "plain iteration, ms", "preparation, ms", "blocking, ms", "overhead, ms"]
    header += ["blocking of the slowest rank, ms", "below keras-default"]
    return table(header, lines) + f"\n\nThe paper's own figures: {report.settings['published']}."


def options(parser: argparse.ArgumentParser) -> None:
    """What can be left out."""
    names = sorted({name for name, _ in PLAN})
    parser.add_argument("--workloads", nargs="+", default=names, choices=names, help="(default: all)")


if __name__ == "__main__":
    run("paper", __doc__, measure, tables, draw, options)
