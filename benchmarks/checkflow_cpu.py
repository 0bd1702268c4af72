"""The part of ``benchmarks.checkflow`` that plans for Keras versions of the paper's eight models, profiled while they train on this CPU."""

from __future__ import annotations

from dataclasses import replace

from benchmarks import jobs
from benchmarks.checkflow_peaks import NAMES
from benchmarks.checkflow_plans import reachable
from benchmarks.report import Row, say, span, table
from deepfreeze.plan.step import planning
from deepfreeze.plan.step.checkflow import planned
from deepfreeze.plan.step.highs import Solver
from deepfreeze.plan.step.profile import StepProfile

BATCHES = (1, None)  # None: the largest one that memory has room for
LINK = 63e9  # bytes a second: of the paper
# Of the solver, and of a job: a machine with much memory has steps of minutes.
_SECONDS, _LIMIT = 10.0, 4 * 3600.0


def measure(quick: bool) -> list[Row]:
    """A row for each model and batch."""
    rows = []
    with jobs.places(None) as (disk, _):
        for model in list(NAMES)[-3:-2] if quick else NAMES:
            for batch in BATCHES[:1] if quick else BATCHES:
                say(f"{NAMES[model]} on this CPU, {'largest batch' if batch is None else f'batch {batch}'} ...")
                params = {"model": model, "batch": batch, "folder": str(jobs.empty(disk, "run"))}
                (found,) = jobs.gather("checkflow_keras_rank", params, 1, disk, _LIMIT)
                rows.append(_row(model, found["batch"], StepProfile.from_json(found["profile"])))
                rows[-1].add("memory", "B", [found["memory"]])
    return rows


def _row(model: str, batch: int, profile: StepProfile) -> Row:
    row = Row({"model": NAMES[model], "batch": batch, "windows": len(profile.windows)})
    row.add("state", "B", [profile.nbytes]).add("step", "s", [profile.seconds])
    row.add("disk", "B/s", [profile.nbytes / profile.seconds])
    row.add("rate", "B/s", [sum(one.rate * one.seconds for one in profile.windows) / profile.seconds])
    row.add("spread", "", [profile.spread])
    found = reachable(profile, 1, seconds=_SECONDS)
    row.add("extra", "B", [found.plan.extra]).add("faster", "", [found.faster]).add("gap", "", [found.plan.gap])
    row.add("greedy", "B", [] if found.plan.greedy is None else [found.plan.greedy - found.asked.base])
    linked = replace(profile, windows=tuple(replace(one, rate=LINK) for one in profile.windows))
    plan = planned(planning.question(linked), planning.part_size(profile.nbytes), Solver(_SECONDS))
    return row.add("linked", "B", [plan.extra])


def tables(rows: list[Row]) -> str:
    """A line for each model and batch."""
    lines = []
    for row in rows:
        state = row.median("state")
        held = [
            f"{row.median(name) / state:.2f}" if row.samples(name) else "no plan"
            for name in ("extra", "greedy", "linked")
        ]
        figures = [
            span(row, "state", 1e-6, 0),
            span(row, "memory", 1e-9, 1),
            span(row, "step", 1e3, 0),
            f"{row.median('spread'):.0%}",
            span(row, "disk", 1e-9, 2),
            span(row, "rate", 1e-9, 2),
        ]
        lines.append(
            [
                row.labels["model"],
                row.labels["batch"],
                row.labels["windows"],
                *figures,
                span(row, "faster", 1, 2),
                *held,
            ]
        )
    head = [
        "Keras on this CPU",
        "batch",
        "windows",
        "state, MB",
        "memory of the training, GB",
        "step, ms",
        "its spread",
        "store needed, GB/s",
        "store while training, GB/s",
    ]
    head += [
        "planned for a store so many times as fast",
        "copies held, of the state",
        "greedy",
        "with a link of 63 GB/s",
    ]
    return table(head, lines)
