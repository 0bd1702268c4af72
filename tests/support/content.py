"""The content of the checkpoints that rank processes write: bytes that follow from attempt and step, so that a mixture is noticed."""

from __future__ import annotations

import itertools
import random

RUN_ID = bytes(range(16))
STRUCTURE = bytes(range(32))
PAGE = 4096  # no two ranks write to one page of the model file


def attempt_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def model_bytes(attempt: int, step: int, size: int) -> bytearray:
    return bytearray(random.Random(attempt * 1_000_003 + step).randbytes(size))


def private_bytes(attempt: int, step: int, rank: int) -> bytes:
    return b"attempt %d step %d rank %d" % (attempt, step, rank)


def pieces(rank: int, world: int, size: int) -> list[tuple[int, int]]:
    """(begin, end) in the file of the rank's regions, in bytes. Together they are whole pages, in two parts of the file; the borders
    between regions of one part are not at pages."""
    cuts = sorted({min(-(-size * i // (2 * world) // PAGE) * PAGE, size) for i in range(2 * world + 1)})
    shares = [share for i, share in enumerate(itertools.pairwise(cuts)) if i % world == rank]
    return [piece for a, b in shares for piece in itertools.pairwise(sorted({a, (2 * a + b) // 3, b}))]
