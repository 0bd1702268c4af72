"""The control word's maximum over all ranks, taken in the train function's graph. Imports TensorFlow."""

from __future__ import annotations

import numpy as np

from deepfreeze.frameworks.tensorflow.own_variables import own_variable
from deepfreeze.ranks.world import World


class TensorFlowMaximum:
    """Two int64 variables of shape ``(fields,)``: this rank's proposals, and the maximum over all ranks in the last step. Implements
    ``ranks.control_word.GraphMaximum``."""

    def __init__(self, world: World, fields: int) -> None:
        """``world``: has ``in_graph``, so its ``maximum`` takes a tensor of the graph; ``fields``: how many the control word has."""
        self._world = world
        zeros = np.zeros(fields, np.int64)
        self._proposed = own_variable(zeros, "deepfreeze_proposed")
        self._agreed = own_variable(zeros, "deepfreeze_agreed")

    def emit(self) -> None:
        """Adds the maximum to the graph that is being traced. When TensorFlow executes eagerly, the maximum is taken in this call.
        Collective: every rank traces, or executes, the same."""
        self._agreed.assign(self._world.maximum(self._proposed.read_value()))

    def propose(self, values: np.ndarray) -> None:
        """See ``ranks.control_word.GraphMaximum``."""
        self._proposed.assign(values)

    def agreed(self) -> np.ndarray:
        """See ``ranks.control_word.GraphMaximum``."""
        return self._agreed.numpy()
