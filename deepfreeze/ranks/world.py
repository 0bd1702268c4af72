"""The ranks of a job, and the few times they talk: at the start, and while training only through the control word.

The world is Horovod's if it is initialised, else one rank, also under ``mpirun``: independent jobs are not replicas. An
mpi4py communicator counts only when it is given.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from deepfreeze.errors import Error, OptionError, WorldError

T = TypeVar("T")


class World(Protocol):
    """Rank and size, and two collective operations that every rank must call in the same order."""

    rank: int
    size: int
    in_graph: bool

    def broadcast(self, value: Any) -> Any:
        """Rank 0's value, on every rank. Any picklable object."""

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, by rank, on every rank."""

    def maximum(self, values: Any) -> Any:
        """The maximum over all ranks of each element of an int64 array; ``in_graph``: of a tensor, in TensorFlow's graph."""


class OneRank:
    """A job of one process."""

    rank = 0
    size = 1
    in_graph = False

    def broadcast(self, value: Any) -> Any:
        """The value itself."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """The value alone."""
        return [value]

    def maximum(self, values: Any) -> Any:
        """The values themselves."""
        return values


class HorovodWorld:
    """The ranks of ``hvd.init()``."""

    in_graph = True

    def __init__(self, hvd: Any) -> None:
        self._hvd = hvd
        self.rank = hvd.rank()
        self.size = hvd.size()

    def broadcast(self, value: Any) -> Any:
        """Through Horovod's own transport, so it works under MPI and gloo."""
        return self._hvd.broadcast_object(value, root_rank=0)

    def gather(self, value: Any) -> list[Any]:
        """Through Horovod's own transport, so it works under MPI and gloo."""
        return self._hvd.allgather_object(value)

    def maximum(self, values: Any) -> Any:
        """One more of the step's allreduces; Horovod matches it between the ranks by the op's name in the graph."""
        return self._hvd.allreduce(values, op=self._hvd.Max)


class MpiWorld:
    """The ranks of an mpi4py communicator."""

    in_graph = False

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.rank = comm.Get_rank()
        self.size = comm.Get_size()

    def broadcast(self, value: Any) -> Any:
        """``comm.bcast``."""
        return self._comm.bcast(value, root=0)

    def gather(self, value: Any) -> list[Any]:
        """``comm.allgather``."""
        return self._comm.allgather(value)

    def maximum(self, values: Any) -> Any:
        """``comm.allgather``; needs no import of mpi4py's operations."""
        return np.max(self._comm.allgather(values), axis=0)


def current(comm: Any = None) -> World:
    """The given communicator's world, else Horovod's, else one rank. ``OptionError`` for what is no communicator, or one of
    another size than Horovod's."""
    hvd = sys.modules.get("horovod.tensorflow")
    horovod = HorovodWorld(hvd) if hvd is not None and hvd.is_initialized() and hvd.size() > 1 else None
    if comm is not None:
        missing = [name for name in _CALLS if not callable(getattr(comm, name, None))]
        if missing:
            found = f"{repr(comm)[:100]}, without {missing[0]}()"
            raise _no_world("an mpi4py communicator", found, "pass e.g. mpi4py.MPI.COMM_WORLD")
        if horovod is not None and horovod.size != comm.Get_size():
            found, todo = (
                f"one of {comm.Get_size()}",
                "leave world= out: Horovod's ranks are those that train one model",
            )
            raise _no_world(f"a communicator of Horovod's {horovod.size} ranks", found, todo)
        return MpiWorld(comm)
    return horovod or OneRank()


_CALLS = ("Get_rank", "Get_size", "bcast", "allgather")


def _no_world(expected: str, found: str, todo: str) -> OptionError:
    return OptionError(where="world=", expected=expected, found=found, todo=todo)


def each(world: World, action: Callable[[], T]) -> T:
    """Runs ``action`` on every rank and returns this rank's result; if it fails anywhere, raises on every rank.

    A rank raises its own error if it has one, else a ``WorldError`` that names the first rank that failed. So no rank is left
    waiting for one that has given up.
    """
    results: list[T] = []

    def keep() -> None:
        results.append(action())

    together(world, keep)
    return results[0]


def together(world: World, action: Callable[[], T]) -> list[T]:
    """As ``each``, and returns all ranks' results, by rank; they must be picklable."""
    mine: tuple[T | None, BaseException | None]
    try:
        mine = (action(), None)
    except Exception as error:
        mine = (None, error)
    outcomes = world.gather((mine[0], None if mine[1] is None else _portable(mine[1])))
    if mine[1] is not None:
        raise mine[1]
    for rank, (_, theirs) in enumerate(outcomes):
        if theirs is not None:
            raise WorldError(
                where=f"rank {world.rank}",
                expected="all ranks to get through the start",
                found=f"rank {rank} failed: {theirs}",
                todo=f"mend what rank {rank} reports",
            ) from theirs
    return [value for value, _ in outcomes]


def on_rank_0(world: World, action: Callable[[], T]) -> T:
    """Rank 0 runs ``action`` and all ranks get its result, or its error."""
    results = together(world, action if world.rank == 0 else lambda: None)
    return results[0]  # type: ignore[return-value]


def _portable(error: BaseException) -> Error:
    """An error that any rank can unpickle."""
    if isinstance(error, Error):
        return error
    return WorldError(
        where=type(error).__name__,
        expected="no error",
        found=str(error) or "no message",
        todo="see that rank's traceback",
    )
