"""A world whose ranks are threads of one process. The threads take turns: each runs until it calls ``gather``, then the next one runs.
So a program does the same things in the same order in each run."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np

LIMIT = 120  # seconds; no test comes near it unless something hangs


class _Turns:
    def __init__(self, size: int) -> None:
        self.size = size
        self._go = [threading.Semaphore(0) for _ in range(size)]
        self._boards: dict[int, dict[int, Any]] = defaultdict(dict)  # by the number of the gathering
        self._ended: set[int] = set()

    def wait(self, rank: int) -> None:
        assert self._go[rank].acquire(timeout=LIMIT), f"rank {rank} waited too long for its turn"

    def pass_on(self, rank: int) -> None:
        for following in range(rank + 1, rank + self.size + 1):
            if following % self.size not in self._ended:
                self._go[following % self.size].release()
                return

    def gather(self, rank: int, number: int, value: Any) -> list[Any]:
        board = self._boards[number]
        board[rank] = value
        self.pass_on(rank)
        self.wait(rank)
        assert len(board) == self.size, f"ranks {sorted(board)} gathered, and the others ended"
        return [board[other] for other in range(self.size)]

    def end(self, rank: int) -> None:
        self._ended.add(rank)
        self.pass_on(rank)


class Threads:
    """One rank; see ``deepfreeze.ranks.world.World``."""

    in_graph = False

    def __init__(self, rank: int, turns: _Turns) -> None:
        self.rank, self.size, self._turns, self._gathered = rank, turns.size, turns, 0

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank."""
        self._gathered += 1
        return self._turns.gather(self.rank, self._gathered, value)

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value."""
        return self.gather(value)[0]

    def maximum(self, values: np.ndarray) -> np.ndarray:
        """The greatest value of all ranks, for each element."""
        return np.max(self.gather(values.copy()), axis=0)

    def working(self) -> contextlib.AbstractContextManager[None]:
        """Does nothing: no test waits for long."""
        return contextlib.nullcontext()


def run(size: int, action: Callable[[Threads], Any]) -> list[Any]:
    """Runs ``action`` on ``size`` ranks; returns by rank what it returned, or the exception that it raised."""
    turns, results = _Turns(size), {}

    def rank(number: int) -> None:
        try:
            turns.wait(number)
            results[number] = action(Threads(number, turns))
        except Exception as error:
            results[number] = error
        finally:
            turns.end(number)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(size)]
    for thread in threads:
        thread.start()
    turns.pass_on(size - 1)
    for thread in threads:
        thread.join(LIMIT)
    return [results[number] for number in range(size)]
