"""The states of Keras's own callbacks, which ``extra=`` takes as they are.

Keras's callbacks have no ``state_dict``, and ``on_train_begin`` sets back what they count. So an adapter stands for each of them in the
checkpoint. It keeps the state that was loaded until every callback's ``on_train_begin`` is over. A callback is known by the name of its
class, or of a class that it inherits from, so Keras is not imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepfreeze.state.callbacks.batch_counts import ModelCheckpoint, TensorBoard
from deepfreeze.state.callbacks.callback_state import CallbackState
from deepfreeze.state.callbacks.csv_logger import CSVLogger
from deepfreeze.state.callbacks.early_stopping import EarlyStopping
from deepfreeze.state.callbacks.learning_rates import LearningRateScheduler, ReduceLROnPlateau

_PACKAGES = ("keras", "tf_keras")
_KNOWN: dict[str, type[CallbackState]] = {
    kind.__name__: kind
    for kind in (EarlyStopping, ReduceLROnPlateau, LearningRateScheduler, ModelCheckpoint, CSVLogger, TensorBoard)
}
NAMES = tuple(_KNOWN)


def adapter_of(thing: Any) -> type[CallbackState] | None:
    """The class of the adapter for a callback of Keras's, or of a class that inherits from one; None for any other object. The adapter's
    constructor takes the callback, and raises ``OptionError`` if its state can't be saved."""
    for cls in type(thing).__mro__:
        if cls.__module__.partition(".")[0] in _PACKAGES and cls.__name__ in _KNOWN:
            return _KNOWN[cls.__name__]
    return None


class CallbackStates:
    """The adapters of the callbacks in ``extra=``. Most methods call each adapter's method of the same name."""

    def __init__(self, adapters: Mapping[str, CallbackState]) -> None:
        self._adapters = dict(adapters)

    def states(self, step: int) -> dict[str, Any]:
        """The states of the callbacks at ``step``, by the callback's name."""
        return {name: (one.state_at(step), one.weights) for name, one in self._adapters.items()}

    def load_states(self, states: Mapping[str, Any]) -> None:
        """Takes what ``states`` has returned, with the best weights, which no checkpoint may have."""
        for name, one in self._adapters.items():
            state, weights = states[name]
            one.load_state_dict(state)
            one.take_weights(weights)

    @property
    def stopping(self) -> dict[str, EarlyStopping]:
        """The adapters of ``EarlyStopping``, by name."""
        return {name: one for name, one in self._adapters.items() if isinstance(one, EarlyStopping)}

    def begin(self, epoch: int | None) -> None:
        """The first epoch begins, with this number; None: a loop does. Gives the callbacks the states that were loaded."""
        for one in self._adapters.values():
            one.recall()
            one.epochs_begin(epoch)
        self.forget()

    def forget(self) -> None:
        """See ``CallbackState``."""
        for one in self._adapters.values():
            one.forget()

    def fit_is_prepared(self) -> None:
        """See ``CallbackState``."""
        for one in self._adapters.values():
            one.fit_is_prepared()

    def model_is_restored(self, model: Any) -> None:
        """See ``CallbackState``."""
        for one in self._adapters.values():
            one.model_is_restored(model)

    def recall(self) -> None:
        """See ``CallbackState``."""
        for one in self._adapters.values():
            one.recall()

    def epoch_ended(self, step: int) -> None:
        """See ``CallbackState``."""
        for one in self._adapters.values():
            one.epoch_ended(step)

    def fit_ended(self) -> None:
        """See ``CallbackState``."""
        for one in self._adapters.values():
            one.fit_ended()

    def closed(self) -> None:
        """See ``CallbackState``."""
        for one in self._adapters.values():
            one.closed()
