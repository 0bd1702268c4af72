"""The figures that the Checkflow paper published (benchmarks/published/checkflow.csv), to stand beside our own."""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).resolve().parent / "published" / "checkflow.csv"
TABLE = "Table I"


@dataclass(frozen=True)
class Entry:
    """An entry of Table I: whether the paper's solver found a plan for a link of ``rate`` GB/s, "yes" or "no"."""

    model: str
    batch: int
    rate: int
    feasible: str


@functools.cache
def lines() -> tuple[dict[str, str], ...]:
    """All lines: source, model, batch, link_GB_per_s, quantity, value."""
    with FILE.open(newline="") as file:
        return tuple(csv.DictReader(file))


def entries() -> list[Entry]:
    """Table I, in its order."""
    those = [line for line in lines() if line["source"] == TABLE]
    return [Entry(one["model"], int(one["batch"]), int(one["link_GB_per_s"]), one["value"]) for one in those]
