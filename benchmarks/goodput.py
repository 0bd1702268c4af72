"""How many useful steps does a job make that is killed again and again? python -m benchmarks.goodput --help

Goodput as PCcheck (ASPLOS 2025) has it: useful steps per second, under a trace of preemptions. Each event of the trace stops
the job, which goes back to its newest checkpoint. Four parts:

published: Figure 9 of the paper from its Figure 8, by the closed formula. Takes no time.
ours: rates, times to commit and times to load of ResNet-50 and NT3, measured here, with a checkpoint every 1, 10, 25, 50 and 100 steps and
    six policies; the trace is replayed with them. An estimated 50 minutes on 2 quiet cores, the tuner included.
interval: the same at the interval that the tuner chose, in more rounds, without checkpoints, with CheckFreq's policy and with the tuned
one. An estimated 15 minutes. kills: half an hour of NT3 that is really killed by the trace at a faster clock, and counted, beside the
forecast; and the same with CheckFreq's policy. An estimated 72 minutes.

goodput = (T - r x redo) / (t T), 0 at least: T duration of the trace, r its events, t the mean step with checkpoints every f steps, t0 the
plain one, l the time to load, Tw from the hand-over of a checkpoint to its commit with N on their way. redo is l + f t0 / 2 (synchronous),
l + f t0 (CheckFreq), l + f t0 / 2 + min(Tw, N f t0) / 2 (several uncommitted). "Stepped": a replay that takes the events one by one.
It loses what a kill at a random moment does, f t / 2 + Tw on average, where the formula has half of the worst case.

Without --trace the events come at random moments, as many in as much time as in PCcheck's trace. The tuned policy needs `deepfreeze tune`;
--quick leaves it out.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks import goodput_interval, goodput_kills, goodput_ours, goodput_published, jobs
from benchmarks import goodput_trace as traces
from benchmarks.goodput_figure import draw
from benchmarks.goodput_trace import Trace
from benchmarks.goodput_tuned import Tuned, tuned
from benchmarks.report import Report, Row, add_parts, before, of_part, run
from deepfreeze.errors import OptionError

PARTS = {"published": goodput_published, "ours": goodput_ours, "interval": goodput_interval, "kills": goodput_kills}
SEED = 21  # of a trace where none is given
WORKLOAD = "nt3"  # that is really killed
FIGURE = "![Throughput and goodput over the interval](figures/goodput.png)"


def measure(args: argparse.Namespace) -> Report:
    """All parts, or those of ``--parts``: then the rows of the other parts stay as they are in the JSON file, if this machine made it."""
    trace = args.trace or traces.seeded(SEED)
    report = Report("goodput", "How many useful steps does a job make that is killed again and again?")
    stays = before(args, report, list(PARTS))
    dates = dict(stays.settings.get("dates", {})) if stays else {}
    about = dict(stays.settings.get("traces", {})) if stays else {}
    with jobs.places(args.folder) as (disk, _):
        for name in PARTS:
            if name in args.parts:
                found = _part(name, args, disk, trace, report.rows)
                dates[name] = report.machine["date"]
                about[name] = _about(trace)
            else:
                found = of_part(stays, name)
            report.add_part(name, found)
    report.settings |= {"dates": dates, "traces": about}
    return report


def _part(name: str, args: argparse.Namespace, disk: Path, trace: Trace, rows: list[Row]) -> list[Row]:
    if name == "published":
        return goodput_published.measure(args.trace)
    if name == "ours":
        return goodput_ours.measure(args.quick, disk, trace)
    if name == "interval":
        return goodput_interval.measure(args.quick, disk, trace)
    plan = goodput_kills.planned(args.minutes, trace, args.quick)
    return goodput_kills.measure(plan, None if args.quick else _choice(rows, disk, trace), disk, trace)


def _choice(rows: list[Row], disk: Path, trace: Trace) -> Tuned:
    """The tuner's choice for the killed workload, of this run's measurements if they have it."""
    for row in rows:
        if (row.labels.get("workload"), row.labels.get("policy")) == (WORKLOAD, goodput_ours.TUNED):
            return Tuned(*(row.labels[name] for name in ("interval", "writers", "transfers", "uncommitted")))
    return tuned(WORKLOAD, disk, trace.mtbf)


def _about(trace: Trace) -> str:
    """The trace in words."""
    return f"{trace.source}: {len(trace.events)} events in {trace.seconds:.0f} s, {trace.losses} of them losses"


def tables(report: Report) -> str:
    """The tables of all parts that were measured, in Markdown, and the figure."""
    shown = []
    for name, part in PARTS.items():
        if rows := of_part(report, name):
            shown += [*([] if name == "published" else [_heading(report, name)]), part.tables(rows)]
    return "\n\n".join([*shown, FIGURE])


def _heading(report: Report, name: str) -> str:
    what = {
        "ours": "**Measured rates, replayed.**",
        "interval": "**At the tuned interval.**",
        "kills": "**Really killed.**",
    }[name]
    return f"{what} Trace: {report.settings['traces'][name]}."


def _trace(file: str) -> Trace:
    try:
        return traces.read(Path(file))
    except OptionError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from problem


def options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that only this benchmark has."""
    add_parts(parser, list(PARTS))
    parser.add_argument("--trace", type=_trace, metavar="FILE", help="CSV of row number, Unix time, GPUs held")
    parser.add_argument(
        "--minutes",
        type=float,
        default=goodput_kills.MINUTES,
        help="of each training that is really killed; fewer than 30 have the first part of the trace (%(default)g)",
    )


if __name__ == "__main__":
    run("goodput", __doc__ or "", measure, tables, draw, options)
