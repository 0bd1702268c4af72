"""Counts the multiplications that readers make of numbers in files. A test that times nothing tells so whether a reader multiplies what it
has not checked."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from deepfreeze.format.strict_json import MAX_INT


@dataclass
class Products:
    """What was multiplied. ``count``: the factors of all products together; ``largest``: the largest factor, in absolute value."""

    count: int = 0
    largest: int = 0

    def check(self) -> None:
        """AssertionError if a factor has more than 63 bits: a product of such ones takes quadratic time."""
        assert self.largest <= MAX_INT, f"an integer of {self.largest.bit_length()} bits was multiplied"


@contextlib.contextmanager
def counted() -> Iterator[Products]:
    """Within the block, calls of ``math.prod`` are counted. The readers multiply sizes by no other means."""
    found, prod = Products(), math.prod

    def counting(factors: Iterable[int], *, start: int = 1) -> int:
        given = list(factors)
        found.count += len(given)
        found.largest = max([found.largest, *map(abs, given)])
        return prod(given, start=start)

    math.prod = counting  # type: ignore[assignment]
    try:
        yield found
    finally:
        math.prod = prod
