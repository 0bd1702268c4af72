"""Keras's own callbacks in ``extra=``, in the fits of one ``Checkpoint``: when each of them is given its state."""

from __future__ import annotations

from typing import Any

from deepfreeze.notices import Notify
from deepfreeze.plan.fit_position import FitPosition
from deepfreeze.state.callbacks.states import CallbackStates
from deepfreeze.training import best_weights
from deepfreeze.training.fits import Fits
from deepfreeze.training.open_run import OpenRun


class EpochCallbacks:
    """The callbacks of one ``Checkpoint``, or of one loop. The training thread calls all methods."""

    def __init__(self, states: CallbackStates, fits: Fits, keep: Any) -> None:
        """``states``: the callbacks' adapters; ``fits``: tells which ``fit`` of the program comes; ``keep``: the rule that says which
        checkpoints stay. ``OptionError`` if it does not keep the best weights of a callback."""
        best_weights.require_kept(states, keep)
        self._states, self._fits, self._keep = states, fits, keep

    @property
    def has_stopped(self) -> bool:
        """Whether a callback had ended the ``fit`` of the checkpoint that was restored."""
        return any(one.has_stopped for one in self._states.stopping.values())

    def fit_is_prepared(self) -> None:
        """To be called when a ``fit`` has been given its callbacks, before ``on_train_begin`` of any of them."""
        self._states.fit_is_prepared()

    def begin(self, open_run: OpenRun, model: Any, position: FitPosition | None, notify: Notify) -> None:
        """Collective. Prepares the callbacks for the ``fit`` of ``model`` at ``position``, None for a loop."""
        if self._fits.behind:
            self._states.forget()  # Keras sets a callback back in each ``fit``
        elif not self._fits.ahead:
            attempt = open_run.attempt
            best_weights.give(self._states, model, attempt.target.run, self._keep, attempt.world, notify)
            self._states.model_is_restored(model)
        if position is None:
            self._states.begin(None)
        self._recall(position)

    def epochs_begin(self, epoch: int) -> None:
        """The first epoch of the ``fit`` that has something to train begins, with this number, from 0."""
        self._states.begin(epoch)

    def fit_ends(self, position: FitPosition | None) -> None:
        """A ``fit`` is over. ``position``: of the ``fit``."""
        self._recall(position)  # once more: ``on_train_begin`` of a later callback in the list may have come between
        self._states.fit_ended()

    def closed(self) -> None:
        """The training is closed."""
        self._states.closed()

    def _recall(self, position: FitPosition | None) -> None:
        """Gives the callbacks their states in a ``fit`` that has nothing to train: no epoch will begin."""
        if position is not None and position.finished and not self._fits.ahead:
            self._states.recall()
