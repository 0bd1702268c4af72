"""The control word: a few integers that the ranks agree on in every step. Imports TensorFlow.

What one rank alone knows (a signal, a full engine, a failure) must not change what it does before the others know it too: a
rank that captures, stops or raises on its own leaves the others waiting for it. So a rank *proposes* between two executions of
the train function; each step of the next execution takes the maximum over all ranks, in the step's own graph; after that
execution every rank reads the same *agreed* values, and acts alike. The ranks meet in every step anyway, to average their
gradients; the word depends on nothing in the step, so it is over long before they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import tensorflow as tf

from deepfreeze.core.world import World


class Slot(IntEnum):
    """What an integer of the word means. Greater values win; 0 is nothing."""

    STOP = 0  # number of a signal that asks for a last checkpoint
    FAILED = 1  # 1 + rank that can't go on
    SKIP = 2  # step that is not to be captured, because an engine is full


@dataclass(frozen=True)
class Agreed:
    """The maximum of all ranks' proposals, the same on every rank after the same execution."""

    stop: int = 0
    failed: int = 0
    skip: int = 0


class ControlWord:
    """This rank's word. ``emit`` is called while ``train_step`` is traced, the rest between two executions."""

    def __init__(self, world: World, in_graph: bool) -> None:
        self._world = world
        self._mine = np.zeros(len(Slot), np.int64)
        self._in_graph = in_graph and world.in_graph
        if self._in_graph:
            with tf.init_scope(), tf.device("CPU:0"):
                self._proposed = tf.Variable(self._mine, trainable=False, name="deepfreeze_proposed")
                self._agreed = tf.Variable(self._mine, trainable=False, name="deepfreeze_agreed")

    def emit(self) -> None:
        """Adds the maximum to the graph being traced (or takes it, when executing eagerly)."""
        if self._in_graph:
            self._agreed.assign(self._world.maximum(self._proposed.read_value()))

    def propose(self, slot: Slot, value: int) -> None:
        """From the next execution on, until something else is proposed."""
        if self._mine[slot] != value:
            self._mine[slot] = value
            if self._in_graph:
                self._proposed.assign(self._mine)

    def agreed(self) -> Agreed:
        """What the last execution agreed on. To be called once after each execution: an mpi4py communicator's ranks agree
        here."""
        values = self._agreed.numpy() if self._in_graph else np.asarray(self._world.maximum(self._mine))
        return Agreed(*(int(value) for value in values))
