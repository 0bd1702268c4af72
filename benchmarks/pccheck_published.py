"""The figures that the PCcheck paper published (benchmarks/published/pccheck.csv), to stand beside our own."""

from __future__ import annotations

import csv
import functools
from pathlib import Path

FILE = Path(__file__).resolve().parent / "published" / "pccheck.csv"


@functools.cache
def _lines() -> tuple[dict[str, str], ...]:
    with FILE.open(newline="") as file:
        return tuple(csv.DictReader(file))


def lines(source: str) -> list[dict[str, str]]:
    """The lines of one figure or section ("Figure 13"), in order: source, model, system, interval, quantity, value and unit. KeyError if
    there are none."""
    found = [line for line in _lines() if line["source"] == source]
    if not found:
        raise KeyError(f"{source}: no figure of the paper")
    return found


def numbers(source: str) -> list[float]:
    """The values of a figure that has one line, which may hold several, in the unit of the line."""
    (line,) = lines(source)
    return [float(value) for value in line["value"].split(" / ")]
