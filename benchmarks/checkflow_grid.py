"""The part of ``benchmarks.checkflow`` that asks for which profiles Table I of Checkflow (2025) comes out: whether a plan of the step
exists for AlexNet and BERT with links of 63, 40 and 20 GB/s.

The paper publishes neither how long an operator takes at least, nor the size of a part, nor its profile. So the whole grid of both is
shown, and the cells are marked in which all published entries hold.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from typing import Any

from benchmarks import checkflow_models as models
from benchmarks.checkflow_published import entries
from benchmarks.report import Row, say, table
from deepfreeze.plan.step import usage
from deepfreeze.plan.step.compact_program import CompactProgram
from deepfreeze.plan.step.greedy import at_once
from deepfreeze.plan.step.highs import Solver
from deepfreeze.plan.step.parts import cut
from deepfreeze.plan.step.question import Question

LEAST = (10, 30, 60, 80, 100)  # microseconds that an operator takes at least
PARTS = (0.5, 1, 2, 4, 8, 16, 24, 32, 64)  # MB of a part at most
RATES = (63, 40, 20)  # GB/s
MODELS = {"AlexNet": "alexnet", "BERT": "bert_roberta_base"}
SECONDS = 6.0  # for the solver, for each entry that neither the rate nor the greedy plan decides
YES, NO, UNKNOWN = "yes", "no", "unknown"


def feasible(question: Question, per_part: float, seconds: float = SECONDS) -> tuple[str, str]:
    """(whether there is a plan, what has decided it), for the paper's form of a question. It is unknown if the solver's time was over
    first."""
    assert not (question.cyclic or question.carry or question.direct)
    # A copy is made in window 0 at the earliest, so nothing is written before window 1.
    if question.nbytes > sum(usage.capacities(question)[1:]):
        return NO, "rate"
    parts = cut(question.tensors, int(per_part))
    if at_once(question, parts) is not None:
        return YES, "greedy"
    solver = Solver(seconds)
    program = CompactProgram(question, parts).least_peak()
    if solver.solve(program, relaxed=True).is_impossible:
        return NO, "relaxation of whole parts"
    found = solver.solve(program, gap=math.inf)
    if found.values is not None:
        return YES, "solver"
    return (NO if found.is_impossible else UNKNOWN), "solver"


def measure(quick: bool) -> list[Row]:
    """A row for each published entry in each cell of the grid."""
    rows = []
    for least in LEAST[-1:] if quick else LEAST:
        say(f"Table I, operators of at least {least} microseconds ...")
        for per_part in PARTS[-1:] if quick else PARTS:
            for entry in entries():
                asked = models.question(MODELS[entry.model], entry.batch, entry.rate * 1e9, least * 1e-6, cyclic=False)
                begun = time.monotonic()
                found, by = feasible(asked, per_part * 1e6)
                labels: dict[str, Any] = {"model": entry.model, "batch": entry.batch, "rate": entry.rate}
                labels |= {"least": least, "size": per_part, "published": entry.feasible, "found": found, "by": by}
                rows.append(Row(labels).add("seconds", "s", [time.monotonic() - begun]))
    return rows


def cells(rows: Iterable[Row]) -> dict[tuple[int, float], list[Row]]:
    """(least microseconds, MB of a part) -> its rows."""
    made: dict[tuple[int, float], list[Row]] = {}
    for row in rows:
        made.setdefault((row.labels["least"], row.labels["size"]), []).append(row)
    return made


def holds(rows: Iterable[Row]) -> bool:
    """True if all published entries come out."""
    return all(row.labels["found"] == row.labels["published"] for row in rows)


def _short(rows: list[Row]) -> Iterator[str]:
    """For each model and batch: which rates have a plan."""
    for model, batch in dict.fromkeys((row.labels["model"], row.labels["batch"]) for row in rows):
        those = {
            row.labels["rate"]: row.labels["found"]
            for row in rows
            if (row.labels["model"], row.labels["batch"]) == (model, batch)
        }
        yield " ".join(
            f"{rate}" if found == YES else f"({rate}?)" if found == UNKNOWN else "-"
            for rate, found in sorted(those.items(), reverse=True)
        )


def tables(rows: list[Row]) -> str:
    """A line for each cell of the grid; the first one is the paper's."""
    by_cell = cells(rows)
    first = next(iter(by_cell.values()))
    jobs = list(dict.fromkeys((row.labels["model"], row.labels["batch"]) for row in first))
    head = [
        "operators take at least, us",
        "parts, MB",
        *(f"{model}, batch {batch}" for model, batch in jobs),
        "as published",
    ]
    paper = []
    for job in jobs:
        those = [row for row in first if (row.labels["model"], row.labels["batch"]) == job]
        paper.append(" ".join(str(row.labels["rate"]) if row.labels["published"] == YES else "-" for row in those))
    lines: list[list[Any]] = [["Checkflow, Table I", "not published", *paper, ""]]
    for (least, part), those in by_cell.items():
        lines.append([least, part, *_short(those), "**yes**" if holds(those) else "no"])
    return table(head, lines)
