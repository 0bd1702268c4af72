"""The control word: a few integers that the ranks agree on in every step.

What one rank alone knows (a signal, a full engine, a failure) must not change what that rank does before the others know it too: a
rank that captures, stops or raises on its own leaves the others waiting for it. So a rank *proposes* between two executions of
the train function; each step of the next execution takes the maximum over all ranks, in the step's own graph; after that
execution every rank reads the same *agreed* values, and acts alike. The ranks meet in every step anyway, to average their
gradients; the word depends on nothing in the step, so the ranks have agreed on it long before their gradients are there.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

import numpy as np

from deepfreeze.ranks.world import World


class Field(IntEnum):
    """The meaning of each integer of the word. Greater values win; 0 means that nothing is proposed."""

    STOP = 0  # number of a signal that asks for a last checkpoint
    FAILED = 1  # 1 + rank that can't go on
    SKIP = 2  # step that is not to be captured, because an engine is full


@dataclass(frozen=True)
class Agreed:
    """The maximum of all ranks' proposals, the same on every rank after the same execution."""

    stop: int = 0
    failed: int = 0
    skip: int = 0


class GraphMaximum(Protocol):
    """Takes the maximum over all ranks inside a framework's graph, once in each step. The training thread calls both methods, only
    between two executions of the train function: the graph never reads the values while they are set."""

    def propose(self, values: np.ndarray) -> None:
        """Sets this rank's values, which each step takes from the next execution on. ``values``: int64, shape ``(len(Field),)``; the
        caller may change the array afterwards. Called when a value has changed, so from never to several times between two
        executions, and on each rank by itself."""

    def agreed(self) -> np.ndarray:
        """The maximum that the last step of the last execution took: int64, shape ``(len(Field),)``, the same on every rank. Called once
        after each execution, on every rank."""


class ControlWord:
    """This rank's word. All methods are called between two executions of the train function."""

    def __init__(self, world: World, in_graph: GraphMaximum | None) -> None:
        """``in_graph``: what takes the maximum in the step's graph; None if the ranks agree between two executions, in ``agreed``."""
        self._world, self._in_graph = world, in_graph
        self._proposed = np.zeros(len(Field), np.int64)
        if in_graph is not None:
            in_graph.propose(self._proposed)  # in place of the proposals of an earlier training in the same graph

    def propose(self, field: Field, value: int) -> None:
        """Proposes ``value`` from the next execution on, until another value is proposed."""
        if self._proposed[field] != value:
            self._proposed[field] = value
            if self._in_graph is not None:
                self._in_graph.propose(self._proposed)

    def agreed(self) -> Agreed:
        """The values that the ranks agreed on in the last execution. To be called once after each execution, on every rank: without
        ``in_graph`` the ranks agree in this call."""
        graph = self._in_graph
        values = np.asarray(self._world.maximum(self._proposed)) if graph is None else graph.agreed()
        return Agreed(*(int(value) for value in values))
