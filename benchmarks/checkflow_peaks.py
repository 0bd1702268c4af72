"""The part of ``benchmarks.checkflow`` that plans the eight models' steps with as little memory as possible, as Figure 2 of Checkflow
(2025) does: how much less memory than CheckFreq's second copy, and how much of the copies is hidden in memory that training leaves anyway.

What can be saved at most is m / (peak + m): m bytes of weights, and the peak of training without checkpoints.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks import checkflow_models as models
from benchmarks.report import Row, say, span, table
from deepfreeze.errors import OptionError
from deepfreeze.plan.step import usage
from deepfreeze.plan.step.equal_parts import in_equal_parts
from deepfreeze.plan.step.highs import Solver

BATCHES = (1, 32)
# GB/s: the paper's three links, and the most that the PCIe 4.0 x16 slot of its GPU carries one way.
RATES = (63.0, 40.0, 31.5, 20.0)
LEAST, PER_PART, SECONDS = 80e-6, 16_000_000, 20.0
NAMES = {
    "alexnet": "AlexNet",
    "bert_roberta_base": "BERT",
    "mnasnet0_5": "MNASNet 0.5",
    "resnet18": "ResNet18",
    "r3d_18": "R3D-18",
    "transformer_1_1": "Transformer",
    "vgg11": "VGG11",
    "vit_b_16": "ViT-B/16",
}


def measure(quick: bool) -> list[Row]:
    """A row for each model, batch and rate."""
    rows = []
    for model in ("alexnet",) if quick else NAMES:
        for batch in BATCHES[-1:] if quick else BATCHES:
            for rate in RATES[:1] if quick else RATES:
                say(f"{NAMES[model]}, batch {batch}, {rate:g} GB/s ...")
                rows.append(_planned(model, batch, rate, 5.0 if quick else SECONDS))
    return rows


def _planned(model: str, batch: int, rate: float, seconds: float) -> Row:
    asked = models.question(model, batch, rate * 1e9, LEAST, cyclic=False)
    step = sum(window.seconds for window in asked.windows)
    labels: dict[str, Any] = {"model": NAMES[model], "batch": batch, "rate": rate, "windows": len(asked.windows)}
    row = Row(labels).add("state", "B", [asked.nbytes]).add("step", "s", [step]).add("base", "B", [asked.base])
    row.add("disk", "B/s", [asked.nbytes / step])
    begun = time.monotonic()
    try:
        plan = in_equal_parts(asked, PER_PART, Solver(seconds))
    except OptionError as problem:
        row.labels["impossible"] = problem.todo
    else:
        row.labels |= {"parts": len(plan.parts), "best": plan.is_best}
        row.add("extra", "B", [plan.extra]).add("bound", "B", [max(0.0, plan.fine_bound - asked.base)]).add(
            "gap", "", [plan.gap]
        )
        row.add("greedy", "B", [] if plan.greedy is None else [plan.greedy - asked.base])
        row.add("end", "", [plan.end]).add("largest", "B", [max(int(usage.held(asked, plan.parts).max()), 0)])
    return row.add("solver", "s", [time.monotonic() - begun])


def hidden(row: Row, name: str = "extra") -> float:
    """The share of the state whose copies fit into memory that training leaves."""
    return 1 - row.median(name) / row.median("state")


def saved(row: Row) -> float:
    """By how much the peak is below CheckFreq's."""
    whole = row.median("base") + row.median("state")
    return 1 - (row.median("base") + row.median("extra")) / whole


def most(row: Row) -> float:
    """The most that can be saved."""
    return row.median("state") / (row.median("base") + row.median("state"))


def tables(rows: list[Row]) -> str:
    """A line for each model, batch and rate."""
    lines = []
    for row in rows:
        labels = row.labels
        what = [
            labels["model"],
            labels["batch"],
            f"{labels['rate']:g}",
            span(row, "state", 1e-6),
            span(row, "step", 1e3),
        ]
        what.append(span(row, "disk", 1e-9, 1))
        if "extra" in row.values:
            greedy = f"{hidden(row, 'greedy'):.0%}" if "greedy" in row.values else "no plan"
            what += [
                f"{saved(row):.1%}",
                f"{most(row):.1%}",
                f"{hidden(row):.0%}",
                greedy,
                f"{hidden(row, 'bound'):.0%}",
            ]
            what += [f"{row.median('gap'):.1%}", labels["parts"]]
        else:
            what += ["no plan", f"{most(row):.1%}", *["-"] * 5]
        lines.append([*what, span(row, "solver", 1, 1)])
    head = ["model", "batch", "link, GB/s", "state, MB", "step, ms", "disk, GB/s", "below CheckFreq's peak", "at most"]
    head += ["hidden", "hidden, greedy", "hidden, bound", "gap", "parts", "solver, s"]
    return table(head, lines)
