"""A world whose ranks are threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class Threads:
    """One rank of it; see ``deepfreeze.core.world.World``."""

    in_graph = False

    def __init__(self, rank: int, size: int, board: dict[int, Any], barrier: threading.Barrier) -> None:
        self.rank, self.size, self._board, self._barrier = rank, size, board, barrier

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value."""
        self._board[self.rank] = value
        self._barrier.wait(10)
        everything = [self._board[rank] for rank in range(self.size)]
        self._barrier.wait(10)
        return everything

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value."""
        return self.gather(value)[0]


def run(size: int, action: Callable[[Threads], Any]) -> list[Any]:
    """What each rank returned, or raised, by rank."""
    board: dict[int, Any] = {}
    barrier, results = threading.Barrier(size), {}

    def rank(number: int) -> None:
        try:
            results[number] = action(Threads(number, size, board, barrier))
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return [results[number] for number in range(size)]
