"""The state of a callback of Keras's, in the checkpoint. Each callback that has one has an adapter, which inherits from this class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class CallbackState:
    """The state of one of Keras's callbacks. The training thread calls all methods. ``attributes``: the callback's attributes that are the
    state, each None or a number; ``loaded``: the state that was loaded and not yet given to the callback.

    The order of the calls in a ``fit``: ``fit_is_prepared``; ``model_is_restored``; ``recall`` and ``epochs_begin`` when its first epoch
    begins, after ``on_train_begin`` of all callbacks; ``epoch_ended`` at the end of each epoch; ``fit_ended``. ``forget`` and
    ``closed`` may come at any time. A hand-written loop begins with ``model_is_restored``, ``recall`` and ``epochs_begin``."""

    attributes: tuple[str, ...] = ()

    def __init__(self, callback: Any) -> None:
        self.callback = callback
        self.loaded: Mapping[str, Any] = {}

    def state_at(self, step: int) -> dict[str, Any]:
        """The callback's present state, at ``step``."""
        names = [name for name in self.attributes if hasattr(self.callback, name)]
        return {name: _plain(getattr(self.callback, name)) for name in names}

    def load_state_dict(self, state: Any) -> None:
        """Takes a state that ``state_at`` has returned."""
        self.loaded = state if isinstance(state, Mapping) else {}

    @property
    def weights(self) -> list[np.ndarray] | None:
        """The best weights that the callback has, None if it has none."""
        return None

    def take_weights(self, weights: list[np.ndarray] | None) -> None:
        """Takes the best weights that belong to the state that was loaded."""

    def forget(self) -> None:
        """Forgets the state that was loaded."""
        self.loaded = {}

    def fit_is_prepared(self) -> None:
        """A ``fit`` has been given its callbacks, and no ``on_train_begin`` was called."""

    def model_is_restored(self, model: Any) -> None:
        """The ``model`` has the values of the checkpoint whose state is ``loaded``."""

    def recall(self) -> None:
        """Gives the callback the state that is ``loaded``. May be called again."""
        for name in self.attributes:
            if name in self.loaded:
                setattr(self.callback, name, self.loaded[name])

    def epochs_begin(self, epoch: int | None) -> None:
        """The first epoch begins, with this number; None in a loop."""

    def epoch_ended(self, step: int) -> None:
        """All callbacks have seen the end of an epoch, whose last step is ``step``."""

    def fit_ended(self) -> None:
        """The ``fit`` is over."""

    def closed(self) -> None:
        """The training is closed, perhaps after an exception has ended its ``fit`` before the first epoch."""


def set_counts(callback: Any, now: Mapping[str, Any] | None, state: Mapping[str, Any], add: bool) -> None:
    """Gives the counts that this version of Keras has the values of the ``state``. ``add``: adds these to the present ones."""
    saved = state.get("counts") or {}
    for name, value in (now or {}).items():
        if name in saved:
            setattr(callback, name, value + saved[name] if add else saved[name])


def _plain(value: Any) -> Any:
    """None, a whole number or a number, of an attribute of a callback."""
    return value if value is None or type(value) in (bool, int) else np.asarray(value).item()
