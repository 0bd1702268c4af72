"""The ranks of an mpi4py communicator."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from deepfreeze.errors import WaitError
from deepfreeze.ranks.bounded import Bounded, Message
from deepfreeze.ranks.caller import Caller, again
from deepfreeze.ranks.wait import PATIENT, Patience, Wait, name_of_call

# Seconds for which a wait polls MPI without a pause, as MPI's own waits do, and the longest pause of a poll after that.
_SPIN, _PAUSE = 0.002, 0.001
_ADVICE = "`mpirun python -m mpi4py train.py` ends all ranks when one has an exception"

# Communicators on which a call was given up, each with the error and what MPI may still write to.
_lost: list[tuple[Any, WaitError, list[Any]]] = []
# The communicators that can't be polled, each with its thread.
_callers: list[tuple[Any, Caller]] = []


class MpiWorld(Bounded):
    """The ranks of an mpi4py communicator. The thread that makes a call polls it, because MPI may allow no other thread. A program's own
    object that has ``allgather`` and no ``Iallgather`` is called on a thread of its own."""

    in_graph = False

    def __init__(self, comm: Any, patience: Patience = PATIENT) -> None:
        super().__init__(comm.Get_rank(), comm.Get_size(), patience, _ADVICE)
        self._comm = comm
        self._polled = all(callable(getattr(comm, name, None)) for name in ("Iallgather", "Iallgatherv"))

    def maximum(self, values: Any) -> Any:
        """Gathers the arrays and takes the maximum here: ``allreduce`` would need mpi4py's ``MPI.MAX``, and so an import of mpi4py."""
        wait = self._wait(name_of_call())
        if not self._polled:
            return np.max(_caller(self._comm).call(lambda: self._comm.allgather(values), wait), axis=0)
        found = np.empty((self.size, *values.shape), values.dtype)
        with self._kept(wait, values, found) as kept:
            kept.append(self._comm.Iallgather(values, found))
            _poll(kept[-1], wait)
        return found.max(axis=0)

    def _exchange(self, mine: Message, wait: Wait) -> list[Message]:
        if not self._polled:
            return self._checked(mine, _caller(self._comm).call(lambda: self._comm.allgather(self._packed(mine)), wait))
        data = np.frombuffer(self._packed(mine), np.uint8)
        length, lengths = np.array([len(data)], np.int64), np.empty(self.size, np.int64)
        with self._kept(wait, data, length, lengths) as kept:
            kept.append(self._comm.Iallgather(length, lengths))
            _poll(kept[-1], wait)
            ends = np.cumsum(lengths)
            found = np.empty(ends[-1], np.uint8)
            kept += [found, self._comm.Iallgatherv(data, [found, lengths.tolist()])]
            _poll(kept[-1], wait)
        return self._checked(mine, [one.tobytes() for one in np.split(found, ends[:-1])])

    @contextlib.contextmanager
    def _kept(self, wait: Wait, *buffers: np.ndarray) -> Iterator[list[Any]]:
        """A block in which MPI may use the ``buffers``, and what the block adds to the list. If an exception ends it, the communicator is
        lost: MPI matches calls by their order, and has no way to take one back."""
        for comm, error, _ in _lost:
            if comm is self._comm:
                raise again(error)
        kept: list[Any] = list(buffers)
        try:
            yield kept
        except BaseException as error:
            _lost.append((self._comm, error if isinstance(error, WaitError) else wait.interrupted(error), kept))
            raise


def _caller(comm: Any) -> Caller:
    """The thread of ``comm``. Ranks that are threads of one process must not wait for each other's."""
    for known, caller in _callers:
        if known is comm:
            return caller
    _callers.append((comm, Caller()))
    return _callers[-1][1]


def _poll(request: Any, wait: Wait) -> None:
    """Waits for the end of an mpi4py request."""
    if request.Test():
        return
    begin = time.monotonic()
    due = begin + wait.look()
    while not request.Test():
        now = time.monotonic()
        if now >= due:
            due = now + wait.look()
        if now - begin > _SPIN:
            time.sleep(min(_PAUSE, (now - begin) / 10))
