"""The callbacks of Keras that set the learning rate, in ``extra=``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from deepfreeze.state.callbacks.callback_state import CallbackState


class ReduceLROnPlateau(CallbackState):
    """The learning rate is a variable of the optimizer. The last step of an epoch is captured before the callback lowers the rate, so the
    state has the rate too."""

    attributes = ("best", "wait", "cooldown_counter")

    def state_at(self, step: int) -> dict[str, Any]:
        """With the learning rates of the model's optimizers."""
        found = _rated(getattr(self.callback, "model", None))
        return {**super().state_at(step), "rates": [rate for _, rate in found]}

    def model_is_restored(self, model: Any) -> None:
        """Sets the learning rates that differ from those of the checkpoint's last step."""
        for (optimizer, rate), saved in zip(_rated(model), self.loaded.get("rates", ()), strict=False):
            if saved != rate:
                optimizer.learning_rate = saved


class _Schedule:
    """In place of the user's ``function``, which takes an epoch, or an epoch and a learning rate. One object serves all adapters of the
    callback: a program may give it to several of its ``Checkpoint``s.

    ``before``: the epoch that has begun last, and the rate before it; ``again``: the same of the checkpoint, until an epoch begins. Both
    are [None, None] if there is none."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.before: list[Any] = [None, None]
        self.again: list[Any] = [None, None]

    def __call__(self, epoch: int, *rate: float) -> Any:
        again, self.again = self.again, [None, None]
        if rate and epoch == again[0]:
            rate = (again[1],)
        if rate:
            self.before = [int(epoch), float(rate[0])]
        return self._function(epoch, *rate)


class LearningRateScheduler(CallbackState):
    """The callback has no state, but its function may go by the learning rate before the epoch. When an interrupted epoch begins again, the
    optimizer has the epoch's own rate already. So the state has the rate with which the function was called."""

    def __init__(self, callback: Any) -> None:
        super().__init__(callback)
        given = callback.schedule
        self._schedule = callback.schedule = given if isinstance(given, _Schedule) else _Schedule(given)

    def state_at(self, step: int) -> dict[str, Any]:
        """The epoch and the rate with which the function was called last."""
        return {"before": self._schedule.before}

    def fit_is_prepared(self) -> None:
        """The first epoch of a new ``fit`` begins with the optimizer's rate."""
        self._schedule.before = self._schedule.again = [None, None]

    def model_is_restored(self, model: Any) -> None:
        """The epoch that was interrupted begins with the rate before it."""
        if "before" in self.loaded:
            self._schedule.again = self.loaded["before"]


def _rated(model: Any) -> list[tuple[Any, float]]:
    """The model's optimizers that have a learning rate which can be read as a number, each with it."""
    optimizer = getattr(model, "optimizer", None)
    found = []
    for one in getattr(optimizer, "optimizers", [optimizer]):
        with contextlib.suppress(TypeError, ValueError):  # none, or a schedule of Keras 2
            found.append((one, float(np.asarray(getattr(one, "learning_rate", None)))))
    return found
