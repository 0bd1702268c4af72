"""The ranks of a job, and how they talk to each other: by ``broadcast`` and ``gather`` while a training is set up, and only by the control
word afterwards.

The ranks are Horovod's if ``hvd.init()`` was called. Otherwise the job has one rank, also under ``mpirun``, which may have started
independent jobs that train a model each. An mpi4py communicator is used only if the user passes it (``world=``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from deepfreeze import launch
from deepfreeze.errors import Error, OptionError, WorldError
from deepfreeze.ranks.horovod_world import HorovodWorld
from deepfreeze.ranks.mpi_world import MpiWorld
from deepfreeze.ranks.wait import PATIENT, Patience

T = TypeVar("T")


class World(Protocol):
    """The ranks that train one model together. ``rank``: this process's, from 0; ``size``: their number; ``in_graph``: whether
    ``maximum`` takes a tensor in TensorFlow's graph, instead of an array.

    ``broadcast``, ``gather`` and ``maximum`` are collective: every rank calls them, in the same order, and each call returns when all ranks
    have made it. One thread of a rank calls at a time. Outside of a graph the wait for the others is bounded: ``WaitError`` after the
    ``timeout`` of the world's ``Patience``, and in each later call at once."""

    rank: int
    size: int
    in_graph: bool

    def broadcast(self, value: Any) -> Any:
        """Returns rank 0's ``value`` on every rank. It can be any object that can be pickled; the other ranks' values are ignored."""

    def gather(self, value: Any) -> list[Any]:
        """Returns the values of all ranks, by rank, on every rank: ``size`` objects that can be pickled."""

    def maximum(self, values: Any) -> Any:
        """Returns the maximum over all ranks of each element. ``values``: int64, shape ``(fields,)``, the same shape on every rank; a
        tensor of the graph that is being traced if ``in_graph``, or a numpy array."""

    def working(self) -> contextlib.AbstractContextManager[None]:
        """A block in which this rank works on what it sends in the call that follows. Not collective. The other ranks, which may be waiting
        for that call, hear now and then that this rank is at work, and go on waiting. Where the transport can't tell them the work counts
        as waiting."""


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

    def working(self) -> contextlib.AbstractContextManager[None]:
        """Does nothing: nobody waits."""
        return contextlib.nullcontext()


#: A value of ``world=``: this process trains a model of its own, whatever launched it.
ALONE = "alone"


def current(comm: Any = None, patience: Patience = PATIENT) -> World:
    """The ranks of this job: the first answer of ``WORLDS``. ``comm``: the option ``world=``, None if it was not given; ``patience``: for
    how long the ranks wait for each other. ``OptionError`` if ``comm`` is neither ``ALONE`` nor a communicator, or has another size than
    Horovod's world."""
    return next(world for find in WORLDS if (world := find(comm, patience)) is not None)


def _alone(comm: Any, patience: Patience) -> World | None:
    """One rank, if the user says so."""
    return OneRank() if isinstance(comm, str) and comm == ALONE else None


def _of_communicator(comm: Any, patience: Patience) -> World | None:
    """The ranks of the communicator that the user has passed."""
    if comm is None:
        return None
    missing = [name for name in _CALLS if not callable(getattr(comm, name, None))]
    if missing:
        found = f"{repr(comm)[:100]}, without {missing[0]}()"
        raise _no_world('an mpi4py communicator, or "alone"', found, "pass e.g. mpi4py.MPI.COMM_WORLD")
    horovod = _of_horovod(None, patience)
    if horovod is not None and horovod.size != comm.Get_size():
        found, todo = f"one of {comm.Get_size()}", "leave world= out: Horovod's ranks are those that train one model"
        raise _no_world(f"a communicator of Horovod's {horovod.size} ranks", found, todo)
    return MpiWorld(comm, patience)


def _of_horovod(comm: Any, patience: Patience) -> World | None:
    """Horovod's ranks, if ``hvd.init()`` was called and there are several."""
    hvd = launch.horovod()
    return None if hvd is None else HorovodWorld(hvd, patience)


def _one_rank(comm: Any, patience: Patience) -> World | None:
    """One rank, whatever has launched the process: a launcher may start independent jobs that train a model each."""
    return OneRank()


# Who may know the ranks of a job. The user's word comes first; behind it whoever has formed a group of processes.
WORLDS: tuple[Callable[[Any, Patience], World | None], ...] = (_alone, _of_communicator, _of_horovod, _one_rank)

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
    with world.working():
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
