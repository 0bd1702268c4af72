"""``EarlyStopping`` of Keras, in ``extra=``."""

from __future__ import annotations

from typing import Any

import numpy as np

from deepfreeze.state.callbacks.callback_state import CallbackState


class EarlyStopping(CallbackState):
    """The best weights are not in the state, because the checkpoint of the step at which the best epoch has ended has them. ``weights_of``:
    this step, if the callback has still to be given the weights."""

    attributes = ("wait", "stopped_epoch", "best", "best_epoch")

    def __init__(self, callback: Any) -> None:
        super().__init__(callback)
        self._best: Any = None
        self._best_step: int | None = None
        self._weights: list[np.ndarray] | None = None
        self.weights_of: int | None = None

    @property
    def monitor(self) -> str:
        """The name of the metric by which an epoch is the best."""
        return str(self.callback.monitor)

    @property
    def mode(self) -> str | None:
        """Whether the lowest ("min") or the highest ("max") value is the best; None if Keras 3 finds it out when training begins."""
        name = getattr(getattr(self.callback, "monitor_op", None), "__name__", "")
        given = getattr(self.callback, "mode", "auto")
        return given if given in ("min", "max") else {"less": "min", "greater": "max"}.get(name)

    @property
    def likely_mode(self) -> str:
        """The ``mode``, or what it probably is by the metric's name."""
        return self.mode or ("max" if any(part in self.monitor for part in ("acc", "auc", "score")) else "min")

    @property
    def has_stopped(self) -> bool:
        """Whether the callback had ended the ``fit`` whose state is ``loaded``, and with its present patience would do so again."""
        return self.loaded.get("stopped_epoch", 0) > 0 and self.loaded.get("wait", 0) >= self.callback.patience

    def state_at(self, step: int) -> dict[str, Any]:
        """With the step at which the best epoch has ended."""
        self.epoch_ended(step)
        return {**super().state_at(step), "best_step": self._best_step}

    def load_state_dict(self, state: Any) -> None:
        """Without weights: see ``take_weights``."""
        super().load_state_dict(state)
        self._weights = None
        self.weights_of = self.loaded.get("best_step") if self.callback.restore_best_weights else None

    def forget(self) -> None:
        """With the best weights."""
        super().forget()
        self.weights_of = self._weights = None

    @property
    def weights(self) -> list[np.ndarray] | None:
        """In the order of ``model.get_weights``."""
        return getattr(self.callback, "best_weights", None)

    def take_weights(self, weights: list[np.ndarray] | None) -> None:
        """Takes the best weights, in the order of ``model.get_weights``."""
        self._weights, self.weights_of = weights, None

    def recall(self) -> None:
        """With the best weights."""
        super().recall()
        if self._weights is not None:
            self.callback.best_weights = self._weights

    def epochs_begin(self, epoch: int | None) -> None:
        """The best step is that of this ``fit``."""
        self._best, self._best_step, self._weights = self._now, self.loaded.get("best_step"), None

    def epoch_ended(self, step: int) -> None:
        """Notes the step if the epoch was the best one so far."""
        if self._now != self._best:
            self._best, self._best_step = self._now, step

    def fit_ended(self) -> None:
        """Keras 2.15 gives the model its best weights in the epoch in which the callback ends training. A ``fit`` that had been ended
        before has no such epoch."""
        model = getattr(self.callback, "model", None)
        if self._weights is not None and self.has_stopped and model is not None:
            model.set_weights(self._weights)

    @property
    def _now(self) -> Any:
        return getattr(self.callback, "best", None), getattr(self.callback, "best_epoch", None)
