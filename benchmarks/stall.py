"""How long does a checkpoint hold training up? python -m benchmarks.stall --help

The blocking time of the callback, and the whole stall: blocking, and what the captured step and the next one take more than
plain steps, because copies and the engine take cores and memory bandwidth from them. The plain steps are those half-way to the
checkpoint before and to the one after; there is a pause after each half, before which the engine is done. In these
pauses: stock save_weights, and one memcpy of as many bytes as the rank's shard has, onto touched memory, in one thread.

`light` is NT3's weights under next to no computation, so that nothing hides a cost; with several ranks each trains a replica
of its own, and they share the cores. Real trainings run under Horovod. Then: what a callback costs that captures nothing,
with a fixed interval and with `Auto` (two trainings that take turns, step by step, with one picture as their batch, because a
shorter step varies by less; the added ops alone; and its work after a step, in a model whose steps cost nothing). And of
models whose updates come last (a large first layer, global-norm clipping): a capture at the update against a late one, in
trainings that take turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
from pathlib import Path
from typing import Any

from benchmarks import jobs, report
from benchmarks.report import Report, Row, interval, say, span, table

SEED = 1
# workload, ranks, steps between checkpoints
TRAININGS = [
    ("light", 1, 12),
    ("light", 2, 12),
    ("light", 4, 8),
    ("nt3", 1, 8),
    ("resnet50", 1, 8),
]
INSTALLED_STEPS = 200
# Models whose updates come last, with steps between checkpoints: captured at the update and late, in turns.
LATE = [("first", 8), ("first-clipped", 8)]
ROUNDS = 4
POLICIES = ("never", "auto")  # of callbacks that capture nothing


def measure(args: argparse.Namespace) -> Report:
    """Measures all of it."""
    found = Report("stall", "How long does a checkpoint hold training up?")
    trainings = [("light", 1, 8)] if args.quick else TRAININGS
    with jobs.places(args.folder) as (disk, memory):
        for workload, ranks, every in trainings:
            for wait_for in ("captured", "local") if (workload, ranks) == ("light", 1) else ("captured",):
                say(f"{workload}, {ranks} rank{'s' * (ranks > 1)}, waiting for {wait_for}")
                options = {"wait_for": wait_for, "local": str(memory)}
                params = {
                    "measure": "checkpoints",
                    "workload": workload,
                    "every": every,
                    "samples": args.samples,
                    "folder": str(disk),
                    "options": options,
                    "distributed": workload != "light",
                    "save_weights": ranks == 1 and (args.quick or workload != "light"),
                }
                ranks_found = jobs.gather("stall_rank", params, ranks, disk)
                row = found.row(kind="checkpoint", workload=workload, ranks=ranks, wait_for=wait_for, every=every)
                _fill(row, ranks_found)
        _late(found, args, disk, memory)
        _installed(found, args, disk)
        _seam(found, args, disk)
    return found


def _fill(row: Row, ranks: list[dict[str, Any]]) -> None:
    """A step is over when the slowest rank is done with it; a copy is as fast as the ranks' copies are on average."""
    row.labels["nbytes"] = max(found["nbytes"] for found in ranks)
    for name in ("plain", "blocking", "stall", "after", "local", "committed"):
        row.add(name, "s", [max(values) for values in zip(*(found[name] for found in ranks))])
    row.add("memcpy", "s", [statistics.fmean(values) for values in zip(*(found["memcpy"] for found in ranks))])
    row.add("save_weights", "s", ranks[0]["save_weights"])


def _late(found: Report, args: argparse.Namespace, disk: Path, memory: Path) -> None:
    for workload, every in LATE[:1] if args.quick else LATE:
        say(f"{workload}, captured at the update and late, in turns")
        rounds = 1 if args.quick else ROUNDS
        params = {
            "measure": "when",
            "workload": workload,
            "every": every,
            "rounds": rounds,
            "samples": max(1, args.samples // rounds),
            "folder": str(disk),
            "options": {"local": str(memory)},
            "save_weights": False,
        }
        of_when = jobs.gather("stall_rank", params, 1, disk)[0]
        row = found.row(kind="late", workload=workload, every=every, nbytes=of_when["late"]["nbytes"])
        row.add("plain", "s", of_when["update"]["plain"] + of_when["late"]["plain"])
        for when, result in of_when.items():
            row.add(f"stall {when}", "s", result["stall"])
            row.add(f"blocking {when}", "s", result["blocking"])
            row.add(f"after {when}", "s", result["after"])
        # With the later steps: the engine begins with a late checkpoint one step later.
        whole = {when: [a + b for a, b in zip(one["stall"], one["after"])] for when, one in of_when.items()}
        row.add("difference", "s", [a - b for a, b in zip(whole["late"], whole["update"], strict=True)])
        if len(row.samples("difference")) > 1:
            row.add("interval", "s", interval(row.samples("difference")))


def _installed(found: Report, args: argparse.Namespace, disk: Path) -> None:
    steps = 10 if args.quick else INSTALLED_STEPS
    params = {"workload": "resnet50", "steps": steps, "samples": args.samples, "folder": str(disk)}
    say("resnet50, the added ops alone")
    ops = jobs.gather("stall_rank", {**params, "measure": "added"}, 1, disk)[0]
    for policy in POLICIES:
        say(f"resnet50, {steps} steps with and without the callback, {policy}, in turns")
        result = jobs.gather("stall_rank", {**params, "measure": "installed", "policy": policy}, 1, disk)[0]
        row = found.row(kind="installed", workload="resnet50", steps=steps, policy=policy)
        row.add("paired", "s", result["without"])
        plain = result["without"]
        if not args.quick:
            plain = found.find(kind="checkpoint", workload="resnet50").samples("plain")
        row.add("plain", "s", plain)
        row.add("difference", "s", [b - a for a, b in zip(result["without"], result["with"])])
        row.add("added ops", "s", ops["added_ops"])
        row.labels["conditions"], row.labels["ops"] = map(int, ops["added_counts"])
        row.add("interval", "s", interval(row.samples("difference")))


def _seam(found: Report, args: argparse.Namespace, disk: Path) -> None:
    steps, rounds = (100, 1) if args.quick else (1000, 2 * ROUNDS)
    say("the callback's work after a step, with a fixed interval and with Auto, in turns")
    params = {"measure": "seam", "steps": steps, "rounds": rounds, "folder": str(disk)}
    result = jobs.gather("stall_rank", params, 1, disk)[0]
    row = found.row(kind="seam", steps=steps)
    for policy in POLICIES:
        row.add(policy, "s", result[policy])
    row.add("difference", "s", [b - a for a, b in zip(result["never"], result["auto"], strict=True)])


def tables(found: Report) -> str:
    """Four tables: checkpoints, late ones, nothing captured, and the callback's work after a step."""
    lines = []
    for row in (row for row in found.rows if row.labels["kind"] == "checkpoint"):
        copy = row.median("memcpy")
        ratio = f"{row.median('save_weights') / row.median('blocking'):.0f}x" if "save_weights" in row.values else "-"
        lines.append(
            [
                row.labels["workload"],
                row.labels["ranks"],
                row.labels["wait_for"],
                f"{row.labels['nbytes'] / 1e6:.0f}",
                span(row, "plain", 1e3, 0),
                span(row, "blocking", 1e3, 2),
                span(row, "save_weights", 1e3, 0),
                ratio,
                span(row, "memcpy", 1e3),
                span(row, "stall", 1e3),
                f"{row.median('stall') / copy:.2f}",
                span(row, "after", 1e3, 0),
                span(row, "local", 1e3, 0),
                span(row, "committed", 1e3, 0),
            ]
        )
    header = ["workload", "ranks", "waits for", "MB per rank", "step, ms", "blocking, ms", "save_weights, ms", "ratio"]
    header += ["memcpy of the shard, ms", "whole stall, ms", "stall / memcpy", "later steps, extra ms", "to local, ms"]
    parts = [table([*header, "to commit, ms"], lines)]
    late = [row for row in found.rows if row.labels["kind"] == "late"]
    if late:
        header = ["workload", "MB", "step, ms"]
        header += ["captured at the update: whole stall, ms", "later steps, extra ms"]
        header += ["late: whole stall, ms", "later steps, extra ms", "late - update, both, ms (95 %)"]
        parts.append(table(header, [_late_cells(row) for row in late]))
    installed = []
    for row in (row for row in found.rows if row.labels["kind"] == "installed"):
        plain = row.median("plain")
        low, high = row.values["interval"]["min"], row.values["interval"]["max"]
        cells = [
            row.labels["workload"],
            "nothing" if row.labels["policy"] == "never" else "Auto",
            f"{plain * 1e3:.0f}",
            row.labels["conditions"],
            span(row, "added ops", 1e3, 3),
            f"{row.median('added ops') / plain:.3%}",
            span(row, "paired", 1e3),
            f"{row.median('difference') * 1e3:.2f} ({low * 1e3:.2f}..{high * 1e3:.2f})",
            f"{row.median('difference') / plain:.2%} ({low / plain:.2%}..{high / plain:.2%})",
        ]
        header = ["workload", "due", "step, ms", "conditional ops", "added ops alone, ms", "of the step"]
        pairs = f"difference of {row.labels['steps']} pairs, ms (95 %)"
        header += ["paired step, batch 1, ms", pairs, "of the step (95 %)"]
        installed.append(cells)
    if installed:
        parts.append(table(header, installed))
    for row in (row for row in found.rows if row.labels["kind"] == "seam"):
        header = ["after a step, fixed interval, us", "with Auto, us", "difference, us"]
        parts.append(table(header, [[span(row, name, 1e6) for name in (*POLICIES, "difference")]]))
    return "\n\n".join(parts)


def _late_cells(row: Row) -> list[Any]:
    ends = row.values.get("interval")
    between = f" ({ends['min'] * 1e3:.0f}..{ends['max'] * 1e3:.0f})" if ends else ""
    return [
        row.labels["workload"],
        f"{row.labels['nbytes'] / 1e6:.0f}",
        span(row, "plain", 1e3, 0),
        span(row, "stall update", 1e3, 0),
        span(row, "after update", 1e3, 0),
        span(row, "stall late", 1e3, 0),
        span(row, "after late", 1e3, 0),
        f"{row.median('difference') * 1e3:.0f}{between}",
    ]


def draw(found: Report, path: Path) -> None:
    """The whole stall and its parts, against one memcpy of the shard."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in found.rows if row.labels["kind"] == "checkpoint" and row.labels["wait_for"] == "captured"]
    names = [f"{row.labels['workload']}\n{row.labels['ranks']} rank{'s' * (row.labels['ranks'] > 1)}" for row in rows]
    figure, axes = pyplot.subplots(figsize=(8, 4.2), layout="constrained")
    for number, (name, text) in enumerate(
        [
            ("save_weights", "stock save_weights"),
            ("memcpy", "memcpy of the shard"),
            ("stall", "whole stall"),
            ("blocking", "blocking"),
        ]
    ):
        there = [(at, row) for at, row in enumerate(rows) if name in row.values]
        places = [at + (number - 1.5) * 0.2 for at, _ in there]
        axes.bar(places, [max(row.median(name), 1e-4) * 1e3 for _, row in there], 0.19, label=text)
    axes.set_yscale("log")
    axes.set_xticks(range(len(rows)), names)
    axes.set_ylabel("milliseconds")
    axes.set_title("What a checkpoint costs training")
    axes.legend(ncols=2, fontsize=8)
    axes.grid(axis="y", alpha=0.3)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    report.run("stall", __doc__ or "", measure, tables, draw)
