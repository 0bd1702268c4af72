"""The epoch and the batch with which one ``fit`` of Keras begins, as a callback can choose them. Imports no framework."""

from __future__ import annotations

from typing import Any

from deepfreeze.state.private_api import first_batch, first_epoch, training_state


class FitBeginning:
    """The beginning of the ``fit`` whose ``on_train_begin`` is running. ``movable``: this version of Keras lets a callback choose the
    epoch; ``inside``: it lets it choose a batch inside of the epoch too. The training thread calls all methods."""

    def __init__(self, model: Any) -> None:
        """``model``: the one whose ``fit`` is running."""
        self._of_keras_3, self._of_keras_2 = first_epoch(model), None
        if self._of_keras_3 is None:
            self._of_keras_2 = training_state(model)
        self._first_batch = None if self._of_keras_3 is None else first_batch(model)
        self._chosen = False
        self.movable = self._of_keras_3 is not None or self._of_keras_2 is not None
        self.inside = self._first_batch is not None or self._of_keras_2 is not None

    def choose(self, epoch: int, batch: int = 0) -> None:
        """Has ``fit`` begin with this ``batch`` of this ``epoch``, both counted from 0. Does nothing unless the beginning is ``movable``. A
        ``batch`` above 0 is only for a beginning that may be ``inside``."""
        self._chosen = True
        if self._of_keras_2 is not None:
            self._of_keras_2(epoch, batch)
        if self._of_keras_3 is not None:
            self._of_keras_3(epoch)
            if batch and self._first_batch is not None:
                self._first_batch(batch)

    def put_back(self) -> None:
        """To be called when Keras has read the epoch: the next ``fit`` must not begin with it too."""
        if not self._chosen:
            return
        self._chosen = False
        if self._of_keras_2 is not None:
            self._of_keras_2(None, 0)
        if self._of_keras_3 is not None:
            self._of_keras_3(None)
