"""Helpers of all parts of ``benchmarks.concurrency``: they find rows, form the ratios of one round, and order the turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from benchmarks.report import Row, interval

T = TypeVar("T")


def find(rows: Sequence[Row], **labels: Any) -> Row:
    """The first row that has these labels. KeyError if there is none."""
    for row in rows:
        if all(row.labels.get(key) == value for key, value in labels.items()):
            return row
    raise KeyError(f"no row with {labels}")


def ratios(row: Row, base: Row, name: str = "rate") -> list[float]:
    """``name`` of a row over that of another one, round by round."""
    return [one / two for one, two in zip(row.samples(name), base.samples(name), strict=True)]


def middle(samples: list[float]) -> float:
    """Their median."""
    return Row({}).add("", "", samples).median("")


def cell(samples: list[float], digits: int = 3) -> str:
    """The median and its 95 % interval; the sample alone if there is one."""
    low, high = interval(samples)
    text = f"{middle(samples):.{digits}f}"
    return text if len(samples) == 1 else f"{text} ({low:.{digits}f}..{high:.{digits}f})"


def turns(number: int, things: Sequence[T]) -> list[T]:
    """All things, beginning with another one in each round."""
    first = number % len(things)
    return [*things[first:], *things[:first]]
