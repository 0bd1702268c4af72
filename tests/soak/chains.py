"""Chains of attempts of one training, each killed but the last: what the attack on the input does, drawn by a seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

WORLDS = (1, 2, 3, 1)  # ranks of one attempt after the other


@dataclass(frozen=True)
class Kill:
    """SIGKILL of all ranks at the end of ``step``; or, with a ``delay``, so many seconds after that step has begun, of the rank number
    ``rank`` (None: of all ranks)."""

    step: int
    delay: float | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Attempt:
    """``size``: items of a batch, on each rank if ``each`` and else of all ranks; ``kill``: None in the last attempt; the rest are the
    values of this name in tests/jobs/attacked.py."""

    ranks: int
    size: int
    each: bool = False
    every: int = 1
    opens: bool = False
    looks: int = 0
    kill: Kill | None = None

    @property
    def shared(self) -> int:
        """Items of a step on all ranks."""
        return self.size * self.ranks if self.each else self.size

    @property
    def batch(self) -> dict[str, int]:
        """The argument of ``Resumable``."""
        return {"batch_size" if self.each else "global_batch": self.size}

    def steps(self, items: int) -> int:
        """Steps of an epoch."""
        return -(-items // self.shared)


@dataclass(frozen=True)
class Chain:
    """``kind``: how the attempts differ; ``api``: the name of a Keras; ``input``: a class of ``deepfreeze.data``; ``last``: what becomes of
    the items at the end of an epoch that do not fill a batch."""

    kind: str
    api: str
    items: int
    epochs: int
    attempts: tuple[Attempt, ...] = field(repr=False)
    last: str = "weighted"
    input: str = "Resumable"

    def __str__(self) -> str:
        ranks = " -> ".join(str(attempt.ranks) for attempt in self.attempts)
        sizes = " -> ".join(f"{one.size}{' each' if one.each else ''}" for one in self.attempts)
        data = f"{self.input} of {self.items} items, {self.last}, {self.epochs} epochs"
        return f"{self.kind}, {self.api}, {data}; ranks {ranks}; batches {sizes}"

    @property
    def undisturbed(self) -> Attempt | None:
        """An attempt that trains, without a kill, what the chain has to: the same items in each step. None if the batches change."""
        first = self.attempts[-1]
        alike = all(attempt.shared == first.shared for attempt in self.attempts)
        return Attempt(first.ranks, first.size, first.each, first.every) if alike else None

    @property
    def one_world(self) -> bool:
        """Whether all attempts have the same ranks, with the same batches: then values can be compared too."""
        return len({(attempt.ranks, attempt.shared) for attempt in self.attempts}) == 1


def same(choose: random.Random, api: str) -> Chain:
    """All attempts have the same ranks and batches. Two of three kills leave exactly one batch of an epoch."""
    data, ranks = choose.choice(("Resumable", "Skipping")), choose.choice(WORLDS)
    items = choose.randint(20, 70)
    items -= items % ranks if data == "Skipping" else 0  # its pipelines have as many on each rank
    first = _batch(choose, ranks, items)
    first = replace(first, each=True, size=first.shared // ranks)
    steps, killed, attempts = first.steps(items), 0, []
    for _ in range(3):
        killed += choose.randint(1, steps)
        if choose.random() < 2 / 3:
            killed += (steps - 1 - killed) % steps
        attempts.append(_attempt(choose, first, _kill(choose, killed, ranks)))
    attempts.append(_attempt(choose, first, None))
    return Chain("same", api, items, choose.randint(3, 4), tuple(attempts), input=data)


def other_ranks(choose: random.Random, api: str) -> Chain:
    """The ranks change; a step has the same items on any number of them."""
    items, size = choose.randint(30, 70), 6 * choose.randint(1, 2)  # each number of ranks divides it
    attempts = _through_worlds(choose, items, lambda ranks: Attempt(ranks, size))
    return Chain("other ranks", api, items, choose.randint(3, 4), attempts)


def other_batches(choose: random.Random, api: str) -> Chain:
    """Ranks and batches change."""
    items = choose.randint(30, 70)
    attempts = _through_worlds(choose, items, lambda ranks: _batch(choose, ranks, items), opens=True)
    return Chain("other batches", api, items, choose.randint(3, 4), attempts, choose.choice(("weighted", "drop")))


def grown(choose: random.Random, api: str, worlds: tuple[int, ...] = WORLDS) -> Chain:
    """Each attempt has a larger batch than all before have trained, with which what is left of the epoch has as many steps as the whole
    epoch, and is killed after its first step. ``worlds``: the ranks of the attempts."""
    while True:
        items, sizes = choose.randint(30, 90), list[int]()
        for ranks in worlds:
            trained = sum(sizes)
            larger = range(ranks * (1 + trained // ranks), 3 * trained + 12, ranks)
            fitting = [size for size in larger if -(-items // size) == -(-(items - trained) // size)]
            sizes += [choose.choice(fitting)] if fitting else []
        if len(sizes) == len(worlds):
            kills = [*(Kill(step) for step in range(1, len(worlds))), None]
            parts = zip(worlds, sizes, kills, strict=True)
            attempts = (Attempt(ranks, size, opens=True, kill=kill) for ranks, size, kill in parts)
            return Chain("grown", api, items, 2, tuple(attempts))


#: Each draws a chain: a function of a generator and of the name of a Keras.
KINDS = (same, grown, other_batches, other_ranks)


def draw(seed: int, number: int, apis: tuple[str, ...]) -> Chain:
    """The chain of this ``number``, from 0. The kinds, and for each kind the ``apis``, come in turns."""
    turn, kind = divmod(number, len(KINDS))
    return KINDS[kind](random.Random(f"{seed} {number}"), apis[(turn + kind) % len(apis)])


def _through_worlds(
    choose: random.Random, items: int, batch: Callable[[int], Attempt], opens: bool = False
) -> tuple[Attempt, ...]:
    """An attempt for each of ``WORLDS``. ``batch``: a function of the ranks; ``opens``: see ``_attempt``."""
    killed, attempts = 0, []
    for number, ranks in enumerate(WORLDS):
        one = batch(ranks)
        killed += choose.randint(1, one.steps(items))
        kill = _kill(choose, killed, ranks) if number < len(WORLDS) - 1 else None
        attempts.append(_attempt(choose, one, kill, opens))
    return tuple(attempts)


def _batch(choose: random.Random, ranks: int, items: int) -> Attempt:
    """With 3 to 9 steps in an epoch, or a few more."""
    rows, each = max(1, items // choose.randint(3, 9) // ranks), choose.random() < 0.5
    return Attempt(ranks, rows if each else rows * ranks, each)


def _attempt(choose: random.Random, batch: Attempt, kill: Kill | None, opens: bool = False) -> Attempt:
    """``opens``: the attempt calls ``open`` if it has several ranks. The rest of an epoch has sample weights where the ranks do not divide
    it, and Keras must have been shown them."""
    calls = choose.random() < 0.5 or (opens and batch.ranks > 1)
    return replace(batch, every=choose.choice((1, 1, 2, 3)), opens=calls, looks=choose.choice((0, 1, 4)), kill=kill)


def _kill(choose: random.Random, step: int, ranks: int) -> Kill:
    if choose.random() < 0.5:
        return Kill(step)
    return Kill(step, choose.random() * 0.3, choose.choice((None, *range(ranks))))
