"""Several checkpoints in flight at once: their cost and their gain. python -m benchmarks.concurrency --help

The questions of PCcheck (ASPLOS 2025), Figures 11 to 14 and Table 1, asked of DeepFreeze; and two of our own: a store that answers late,
and a checkpoint in every step beside what the disk takes. Each part is a module of its own, ``benchmarks.concurrency_NAME``, which says
how it measures. All parts run on one rank. What is compared takes turns within one process, and a ratio compares the samples of one
round.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from types import ModuleType

from benchmarks import (
    concurrency_every_step,
    concurrency_in_flight,
    concurrency_memory,
    concurrency_schemes,
    concurrency_store,
    concurrency_time,
    concurrency_writers,
    jobs,
)
from benchmarks.report import Report, add_parts, before, of_part, run

PARTS: dict[str, ModuleType] = {
    "memory": concurrency_memory,
    "store": concurrency_store,
    "every-step": concurrency_every_step,
    "time": concurrency_time,
    "in-flight": concurrency_in_flight,
    "writers": concurrency_writers,
    "schemes": concurrency_schemes,
}
DRAWN = ("time", "in-flight", "writers", "memory")
FIGURE = "![Figures 11 to 14 of PCcheck, asked of DeepFreeze](figures/concurrency.png)"


def measure(args: argparse.Namespace) -> Report:
    """All parts, or those of ``--parts``: then the rows of the other parts stay as they are in the JSON file, if this machine made it."""
    report = Report("concurrency", "What do several checkpoints at once cost, and what do they gain?")
    stays = before(args, report, list(PARTS))
    dates = dict(stays.settings.get("dates", {})) if stays else {}
    with jobs.places(args.folder) as (disk, _):
        for name, part in PARTS.items():
            if name in args.parts:
                found = part.measure(args.quick, disk)
                dates[name] = report.machine["date"]
            else:
                found = of_part(stays, name)
            report.add_part(name, found)
    report.settings["dates"] = dates
    return report


def tables(report: Report) -> str:
    """The tables of all parts that were measured, in Markdown, and the figure."""
    shown = [part.tables(found) for name, part in PARTS.items() if (found := of_part(report, name))]
    return "\n\n".join([*shown, FIGURE])


def draw(report: Report, path: Path) -> None:
    """A panel for each part that has one and was measured."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    there = {name: found for name in DRAWN if (found := of_part(report, name))}
    columns = min(2, max(1, len(there)))
    lines = -(-len(there) // columns) or 1
    size = (4.6 * columns, 3.4 * lines)
    figure, panels = pyplot.subplots(lines, columns, figsize=size, layout="constrained", squeeze=False)
    for axes in panels.flat[len(there) :]:
        axes.remove()
    for axes, (name, found) in zip(panels.flat, there.items()):
        PARTS[name].draw(axes, found)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this benchmark has."""
    add_parts(parser, list(PARTS))


if __name__ == "__main__":
    run("concurrency", __doc__ or "", measure, tables, draw, options)
