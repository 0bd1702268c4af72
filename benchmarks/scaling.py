"""How does a checkpoint's cost grow with the work? python -m benchmarks.scaling --help

The engine alone, on rank processes without TensorFlow: no training competes for the cores. One thing varies at a time: bytes,
regions, ranks (with the metadata operations that each rank asks of the external store), checkpoints in flight and slots,
writer threads, chunk size; and the placement plan alone. The local tier is in memory where there is such a place. Every
setting of a series is measured in turn in one run, each after a checkpoint that is not counted. submit: how long the caller is
held up; local: the last shard is on the local tier; committed: assembled, fsynced, committed on --folder's disk. CPU seconds
are those of all rank processes for each GB of the checkpoint, both tiers together. An exponent is the slope of a log-log line
over the upper half of the range: 1 is cost in proportion; "-" where the samples at both ends of that half overlap.
"""

from __future__ import annotations

import argparse
import dataclasses
import time

from benchmarks.ranks import scratch
from benchmarks.report import Report, run, say
from benchmarks.scaling_figure import draw, tables
from benchmarks.scaling_series import QUICK, SERIES, Bench, Sizes

__all__ = ["draw", "measure", "tables"]


def measure(args: argparse.Namespace) -> Report:
    """All series, or those of --only."""
    report = Report("scaling", "How does a checkpoint's cost grow with bytes, regions, ranks and settings?")
    sizes = QUICK if args.quick else Sizes()
    report.settings.update(dataclasses.asdict(sizes), quick=args.quick)
    for name in args.only or SERIES:
        begun = time.monotonic()
        # A place of its own for each: what one series left is gone when the next one begins.
        with scratch(args.folder) as (disk, local):
            report.settings["local tier"] = "disk" if local.is_relative_to(disk) else "memory"
            SERIES[name](Bench(report, sizes, args.samples, disk, local))
        say(f"  {name}: {time.monotonic() - begun:.0f} s")
    return report


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this benchmark has."""
    parser.add_argument("--only", nargs="+", choices=list(SERIES), help="these series alone")


if __name__ == "__main__":
    run("scaling", __doc__, measure, tables, draw, options)
