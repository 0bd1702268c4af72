"""What the checkpoints of these tests hold: bytes that follow from attempt and step, so that any mixture shows."""

from __future__ import annotations

import itertools
import random

RUN_ID = bytes(range(16))
STRUCTURE = bytes(range(32))


def attempt_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def model_bytes(attempt: int, step: int, size: int) -> bytearray:
    return bytearray(random.Random(attempt * 1_000_003 + step).randbytes(size))


def private_bytes(attempt: int, step: int, rank: int) -> bytes:
    return b"attempt %d step %d rank %d" % (attempt, step, rank)


def pieces(rank: int, world: int, size: int) -> list[tuple[int, int]]:
    """(begin, end) of the rank's regions: an interleaved share, with borders that are not aligned."""
    cuts = sorted({size * i // (2 * world) for i in range(2 * world + 1)})
    return [(a, b) for i, (a, b) in enumerate(itertools.pairwise(cuts)) if i % world == rank]
