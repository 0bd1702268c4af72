"""The order of the paper's experiment: which approach takes the checkpoint at which step, and how many seconds a checkpoint adds to the
iterations around it. Pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

WARM, SPACE = 2, 1  # steps before the first checkpoint; from one that is not counted to the next
NEAR = 2  # plain steps before a checkpoint and after it that it is compared with


@dataclass(frozen=True)
class Turn:
    """A checkpoint to come; ``counts`` is false for each approach's first, which finds everything untouched."""

    step: int
    approach: str
    counts: bool


def turns(approaches: Sequence[str], begin: int, every: int, samples: int) -> list[Turn]:
    """Round robin, each round beginning with another one."""
    found, step = [], begin + WARM
    for approach in approaches:
        found.append(Turn(step, approach, False))
        step += SPACE
    step += every - SPACE
    for n in range(samples):
        first = n % len(approaches)
        for approach in [*approaches[first:], *approaches[:first]]:
            found.append(Turn(step, approach, True))
            step += every
    return found


def near(spent: dict[int, float], step: int, plain: Sequence[int]) -> float:
    """A plain iteration, by those next to a checkpoint on both sides: a machine that gets faster or slower meanwhile shifts them less
    than those of the whole training."""
    before, after = [at for at in plain if at < step][-NEAR:], [at for at in plain if at > step][:NEAR]
    return statistics.mean(statistics.mean(spent[at] for at in side) for side in (before, after))


def extra(spent: dict[int, float], step: int, plain: Sequence[int], later: float = 0.0) -> float:
    """The seconds that a checkpoint adds to its iteration and to the next one, on average. ``later``: its seconds after those."""
    return (spent[step] + spent[step + 1] + later) / 2 - near(spent, step, plain)
