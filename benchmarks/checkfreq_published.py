"""The figures that the CheckFreq paper published (benchmarks/published/checkfreq.csv), to stand beside our own."""

from __future__ import annotations

import csv
import functools
from pathlib import Path

FILE = Path(__file__).resolve().parent / "published" / "checkfreq.csv"
EPOCHS, OURS = "average recovery: epoch checkpoints", "average recovery: CheckFreq"  # quantities of Table 6


@functools.cache
def _lines() -> tuple[dict[str, str], ...]:
    with FILE.open(newline="") as file:
        return tuple(csv.DictReader(file))


def lines(source: str) -> list[dict[str, str]]:
    """The lines of one of the paper's tables ("Table 3"), in order: source, model, setting, quantity, value and unit."""
    return [line for line in _lines() if line["source"] == source]


def value(source: str, model: str, setting: str, quantity: str) -> float:
    """A figure of the paper, in the unit of its line. KeyError if the paper's tables have no such line."""
    for line in lines(source):
        if (line["model"], line["setting"], line["quantity"]) == (model, setting, quantity):
            return float(line["value"])
    raise KeyError(f"{source}: {model}, {setting}, {quantity}")
