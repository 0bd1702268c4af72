"""The ranks of a job, and how they talk to each other: by ``broadcast`` and ``gather`` while a training is set up, and only by the control
word afterwards.

The ranks are Horovod's if ``hvd.init()`` was called. Otherwise the job has one rank, also under ``mpirun``, which may have started
independent jobs that train a model each. An mpi4py communicator is used only if the user passes it (``world=``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from deepfreeze import launch
from deepfreeze.errors import Error, OptionError, WorldError

T = TypeVar("T")


class World(Protocol):
    """The ranks that train one model together. ``rank``: this process's, from 0; ``size``: their number; ``in_graph``: whether
    ``maximum`` takes a tensor in TensorFlow's graph, instead of an array.

    The three methods are collective: every rank calls them, in the same order, and each call returns when all ranks have made it. One
    thread of a rank calls at a time."""

    rank: int
    size: int
    in_graph: bool

    def broadcast(self, value: Any) -> Any:
        """Returns rank 0's ``value`` on every rank. It can be any object that can be pickled; the other ranks' values are ignored."""

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all ranks, by rank, on every rank: ``size`` objects that can be pickled."""

    def maximum(self, values: Any) -> Any:
        """Returns the maximum over all ranks of each element. ``values``: int64, shape ``(fields,)``, the same shape on every rank; a
        tensor of the graph that is being traced if ``in_graph``, else a numpy array."""


class OneRank:
    """A job of one process."""

    rank = 0
    size = 1
    in_graph = False

    def broadcast(self, value: Any) -> Any:
        """Returns the value itself."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """Returns a list of the value alone."""
        return [value]

    def maximum(self, values: Any) -> Any:
        """Returns the values themselves."""
        return values


class HorovodWorld:
    """The ranks of ``hvd.init()``."""

    in_graph = True

    def __init__(self, hvd: Any) -> None:
        self._hvd = hvd
        self.rank = hvd.rank()
        self.size = hvd.size()

    def broadcast(self, value: Any) -> Any:
        """Uses Horovod's own transport, so it works under MPI and gloo."""
        return self._hvd.broadcast_object(value, root_rank=0)

    def gather(self, value: Any) -> list[Any]:
        """Uses Horovod's own transport, so it works under MPI and gloo."""
        return self._hvd.allgather_object(value)

    def maximum(self, values: Any) -> Any:
        """Adds an allreduce to the graph. Horovod matches the ranks' allreduces by the op's name in the graph."""
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
        """Uses ``comm.allgather``, because ``comm.allreduce`` would need mpi4py's ``MPI.MAX``, and so an import of mpi4py."""
        return np.max(self._comm.allgather(values), axis=0)


#: A value of ``world=``: this process trains a model of its own, whatever launched it.
ALONE = "alone"


def current(comm: Any = None) -> World:
    """One rank if ``comm`` is ``ALONE``; the world of the communicator ``comm``, if one is given; else Horovod's, if ``hvd.init()`` was
    called and it has several ranks; else one rank. ``OptionError`` if ``comm`` is neither, or has another size than Horovod's world."""
    if isinstance(comm, str) and comm == ALONE:
        return OneRank()
    hvd = launch.horovod()
    horovod = HorovodWorld(hvd) if hvd is not None else None
    if comm is not None:
        missing = [name for name in _CALLS if not callable(getattr(comm, name, None))]
        if missing:
            found = f"{repr(comm)[:100]}, without {missing[0]}()"
            raise _no_world('an mpi4py communicator, or "alone"', found, "pass e.g. mpi4py.MPI.COMM_WORLD")
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
    """Collective: runs ``action`` on every rank and returns this rank's result. If the action fails on any rank, every rank raises.

    A rank raises its own error if it has one, else a ``WorldError`` that names the first rank that failed. So no rank waits
    for a rank that has given up.
    """
    results: list[T] = []

    def keep() -> None:
        results.append(action())

    together(world, keep)
    return results[0]


def together(world: World, action: Callable[[], T]) -> list[T]:
    """As ``each``, but returns the results of all ranks, by rank. The results can be pickled."""
    result: T | None = None
    failure: BaseException | None = None
    try:
        result = action()
    except Exception as error:
        failure = error
    results = world.gather((result, None if failure is None else _portable(failure)))
    if failure is not None:
        raise failure
    for rank, (_, theirs) in enumerate(results):
        if theirs is not None:
            raise WorldError(
                where=f"rank {world.rank}",
                expected="all ranks to get through the start",
                found=f"rank {rank} failed: {theirs}",
                todo=f"mend what rank {rank} reports",
            ) from theirs
    return [value for value, _ in results]


def on_rank_0(world: World, action: Callable[[], T]) -> T:
    """Collective: runs ``action`` on rank 0 and returns its result on every rank. The result can be pickled. If the action fails, rank 0
    raises its error, and the other ranks a ``WorldError``."""
    results = together(world, action if world.rank == 0 else lambda: None)
    return results[0]  # type: ignore[return-value]


def _portable(error: BaseException) -> Error:
    """The error in a form that any rank can unpickle: another rank may not have the module of the error's class."""
    if isinstance(error, Error):
        return error
    return WorldError(
        where=type(error).__name__,
        expected="no error",
        found=str(error) or "no message",
        todo="see that rank's traceback",
    )
