"""Communicators between threads of one process, as mpi4py's behave."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import numpy as np


class Board:
    """What the ranks have given, by the number of the call."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.changed = threading.Condition()
        self.calls: dict[int, dict[int, Any]] = defaultdict(dict)

    def put(self, number: int, rank: int, value: Any) -> None:
        with self.changed:
            self.calls[number][rank] = value
            self.changed.notify_all()

    def whole(self, number: int) -> bool:
        return len(self.calls[number]) == self.size


class Request:
    """A call under way. ``tests``: how often it was polled."""

    def __init__(self, board: Board, number: int, take: Any) -> None:
        self._board, self._number, self._take = board, number, take
        self.tests = 0

    def Test(self) -> bool:
        self.tests += 1
        if not self._board.whole(self._number):
            return False
        values = self._board.calls[self._number]
        self._take([values[rank] for rank in range(self._board.size)])
        return True


class Blocking:
    """One rank's communicator that has no call that can be polled, as an object of a program may be."""

    def __init__(self, board: Board, rank: int) -> None:
        self._board, self._rank, self._number = board, rank, 0

    def Get_rank(self) -> int:
        return self._rank

    def Get_size(self) -> int:
        return self._board.size

    def _next(self, value: Any) -> int:
        self._number += 1
        self._board.put(self._number, self._rank, value)
        return self._number

    def allgather(self, value: Any) -> list[Any]:
        number = self._next(value)
        with self._board.changed:
            self._board.changed.wait_for(lambda: self._board.whole(number))
        return [self._board.calls[number][rank] for rank in range(self._board.size)]

    def bcast(self, value: Any, root: int) -> Any:
        return self.allgather(value)[root]


class Polled(Blocking):
    """One rank's communicator, as mpi4py's. ``requests``: the calls so far."""

    def __init__(self, board: Board, rank: int) -> None:
        super().__init__(board, rank)
        self.requests: list[Request] = []

    def _request(self, send: np.ndarray, take: Any) -> Request:
        self.requests.append(Request(self._board, self._next(send.copy()), take))
        return self.requests[-1]

    def Iallgather(self, send: np.ndarray, receive: np.ndarray) -> Request:
        def take(values: list[np.ndarray]) -> None:
            receive.reshape(self._board.size, -1)[:] = values

        return self._request(send, take)

    def Iallgatherv(self, send: np.ndarray, receive: list[Any]) -> Request:
        into, counts = receive

        def take(values: list[np.ndarray]) -> None:
            assert [len(value) for value in values] == counts
            into[:] = np.concatenate(values)

        return self._request(send, take)


def pair(kind: type[Blocking], size: int = 2) -> list[Any]:
    """The communicators of ``size`` ranks."""
    board = Board(size)
    return [kind(board, rank) for rank in range(size)]
