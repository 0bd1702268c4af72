"""The epoch that a ``fit`` is in, as Keras keeps it beside the model: the running sums of the metrics, and the history of the epochs that
have ended. An attachment of each checkpoint of a job with ``data=``. Uses Keras objects, imports neither Keras nor TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deepfreeze.frameworks.table import variables_for


class EpochUnderWay:
    """The epoch under way of one ``fit`` on this rank. The training thread calls all methods, between two executions.

    ``loaded``: the state in the checkpoint that was restored, until it is put back; None if there is none. Its value ``ranks`` is the
    number of ranks of the job that wrote it. With another number of ranks the caller puts rank 0's state in its place."""

    def __init__(self) -> None:
        self.loaded: Mapping[str, Any] | None = None
        self._model: Any = None
        self._history: Any = None
        self._ranks = 1

    def begin(self, model: Any, ranks: int) -> None:
        """A ``fit`` of ``model`` begins, on so many ``ranks``."""
        self._model, self._ranks = model, ranks
        # Kept, because the next ``fit`` gives the model another one before an interrupted ``fit`` is closed.
        self._history = getattr(model, "history", None)

    def state_dict(self) -> dict[str, Any]:
        """The values of the metrics' variables, in the model's order, and Keras's history."""
        history, variables = self._history, variables_for(self._model)
        variables.settle(self._model)
        return {
            "ranks": self._ranks,
            "metrics": [np.array(variables.value(variable)) for variable in _variables(self._model)],
            "epochs": [int(epoch) for epoch in getattr(history, "epoch", ())],
            "logs": {name: _numbers(values) for name, values in getattr(history, "history", {}).items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Keeps the ``state`` in the checkpoint that is restored, for ``put_back``."""
        self.loaded = state

    @property
    def fits(self) -> bool:
        """Whether the model has the variables whose values are to be put back. Keras 2 makes them in the first step."""
        return self.loaded is None or _has_shapes(_variables(self._model), self.loaded["metrics"])

    def put_back(self, inside: bool) -> bool:
        """To be called when Keras has reset its metrics and its history, in the first ``on_epoch_begin``. The history goes on from the
        epochs that were trained before. ``inside``: the epoch goes on too, and so do its metrics. Returns False if the model has other
        metrics than the checkpoint, which then begin anew. Does nothing if no state was loaded."""
        state, self.loaded = self.loaded, None
        if state is None:
            return True
        history = self._history
        if history is not None and not history.epoch:
            history.epoch = list(state["epochs"])
            history.history = {name: values.tolist() for name, values in state["logs"].items()}
        variables = _variables(self._model)
        if not inside or not _has_shapes(variables, state["metrics"]):
            return not inside
        for variable, value in zip(variables, state["metrics"], strict=True):
            variable.assign(value)
        return True


def _variables(model: Any) -> list[Any]:
    """The variables of the model's metrics. A model that is no Keras model has none."""
    return [variable for metric in getattr(model, "metrics", ()) for variable in metric.variables]


def _has_shapes(variables: Sequence[Any], values: Sequence[Any]) -> bool:
    return [tuple(variable.shape) for variable in variables] == [np.shape(value) for value in values]


def _numbers(values: Sequence[Any]) -> np.ndarray:
    """The values of one name in the history (float64); NaN for a value that is no number, so that each epoch keeps its place."""
    return np.array(
        [float(value) if np.ndim(value) == 0 and hasattr(value, "__float__") else np.nan for value in values]
    )
