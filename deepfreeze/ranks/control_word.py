"""The control word: a few integers that the ranks agree on while they train.

A rank that captures, stops or raises because of something that it alone knows (a signal, a full engine, a failure) leaves the others
waiting for it. So a rank *proposes* a value between two executions of the train function, the ranks take the maximum of their proposals,
and each rank reads the same *agreed* value after the same execution.

Where Horovod's ops are in the train function, each step takes the maximum in the step's own graph. The ranks meet in every step anyway, to
average their gradients. The word depends on nothing in the step, so the ranks have agreed on it long before their gradients are there.
Elsewhere (hand-written loops, an mpi4py communicator) the ranks take the maximum between two executions, in ``meet``.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from deepfreeze.errors import OptionError
from deepfreeze.ranks.world import World

_LARGEST = 2**63 - 1


class GraphMaximum(Protocol):
    """Takes the maximum over all ranks inside a framework's graph, once in each step. The training thread calls both methods, only
    between two executions of the train function: the graph never reads the values while they are set."""

    def propose(self, values: np.ndarray) -> None:
        """Sets this rank's values, which each step takes from the next execution on. ``values``: int64, shape ``(fields,)``; the
        caller may change the array afterwards. Called when a value has changed, so from never to several times between two
        executions, and on each rank by itself."""

    def agreed(self) -> np.ndarray:
        """The maximum that the last step of the last execution took: int64, shape ``(fields,)``, the same on every rank. Called once
        after each execution, on every rank."""


class Field:
    """One integer of a control word. ``ControlWord.field`` makes it. ``name``: its name in the word; ``agreed``: the greatest value that
    any rank had proposed when the ranks met last, the same on every rank; 0 if no rank has proposed a value."""

    def __init__(self, word: ControlWord, name: str, index: int) -> None:
        self.name = name
        self.agreed = 0
        self._word, self._index = word, index

    def propose(self, value: int) -> None:
        """Proposes ``value`` from the next execution on, until this rank proposes another value. Greater values win, so 0 takes a
        proposal back. ``OptionError`` unless 0 <= value < 2**63."""
        if not 0 <= value <= _LARGEST:
            raise OptionError(
                where=f"the control word's field {self.name}",
                expected="a whole number from 0 to 2**63 - 1",
                found=repr(value),
                todo="propose a number that fits: the greatest proposal of all ranks wins",
            )
        self._word._propose(self._index, value)


class ControlWord:
    """This rank's word, for one training. All methods are called between two executions of the train function, by the training thread.

    How it is used: each part of the training that needs an agreement takes a ``field``. Then every rank calls ``seal``, before the train
    function is traced, and ``connect``, after it was given the ops that take the maximum. From then on ``meet`` brings the fields up to
    date."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._in_graph: GraphMaximum | None = None
        self._fields: list[Field] = []
        self._sealed = False
        self._proposed = np.zeros(0, np.int64)

    def field(self, name: str) -> Field:
        """A new field. ``OptionError`` if the word has a field of this name, or is sealed: the graph that takes the maximum has a fixed
        number of fields."""
        if self._sealed or name in self.names:
            raise OptionError(
                where=f"the control word's field {name}",
                expected="a new name, registered before the train function is traced",
                found="a name that is taken" if name in self.names else "a training that has begun",
                todo="call field() once, when the training begins",
            )
        self._fields.append(Field(self, name, len(self._fields)))
        self._proposed = np.zeros(len(self._fields), np.int64)
        return self._fields[-1]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the fields, in the order of their values."""
        return tuple(field.name for field in self._fields)

    def seal(self) -> None:
        """Collective: ends the registration. ``OptionError`` on every rank if the ranks have different fields."""
        self._sealed = True
        found = self._world.gather(self.names)
        others = [rank for rank, names in enumerate(found) if names != found[0]]
        if others:
            raise OptionError(
                where=f"rank {others[0]}",
                expected=f"the same fields of the control word as on rank 0: {', '.join(found[0])}",
                found=", ".join(found[others[0]]),
                todo="pass the same every= and other options on every rank",
            )

    def connect(self, in_graph: GraphMaximum | None) -> None:
        """``in_graph``: the object that takes the maximum in the step's graph; None if the ranks agree in ``meet``."""
        self._in_graph = in_graph
        if in_graph is not None:
            in_graph.propose(self._proposed)  # in place of the proposals of an earlier training in the same graph

    def meet(self) -> None:
        """Collective: sets ``agreed`` of each field to the greatest proposal. After the same execution on every rank. With a
        ``GraphMaximum`` it is the maximum that the last execution took, and nobody is waited for."""
        graph = self._in_graph
        values = np.asarray(self._world.maximum(self._proposed)) if graph is None else graph.agreed()
        for field, value in zip(self._fields, values.tolist(), strict=True):
            field.agreed = value

    def _propose(self, index: int, value: int) -> None:
        if self._proposed[index] != value:
            self._proposed[index] = value
            if self._in_graph is not None:
                self._in_graph.propose(self._proposed)
