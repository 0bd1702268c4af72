"""The states of Keras's own callbacks, which ``extra=`` takes as they are.

Keras's callbacks have no ``state_dict``, and ``on_train_begin`` sets back what they count. So an adapter stands for each of them in the
checkpoint. It keeps the state that was loaded until every callback's ``on_train_begin`` is over. A callback is known by the name of its
class, or of a class that it inherits from, so Keras is not imported here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from deepfreeze.errors import OptionError
from deepfreeze.state import csv_rows, private_api

_PACKAGES = ("keras", "tf_keras")


class CallbackState:
    """The state of one of Keras's callbacks. The training thread calls all methods. ``attributes``: the callback's attributes that are the
    state, each None or a number; ``loaded``: the state that was loaded and not yet given to the callback.

    The order of the calls in a ``fit``: ``fit_is_prepared``; ``model_is_restored``; ``recall`` and ``epochs_begin`` when its first epoch
    begins, after ``on_train_begin`` of all callbacks; ``epoch_ended`` at the end of each epoch; ``fit_ended``. A hand-written loop begins
    with ``model_is_restored``, ``recall`` and ``epochs_begin``."""

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

    def take_weights(self, weights: list[np.ndarray]) -> None:
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


class LearningRateScheduler(CallbackState):
    """The callback has no state, but its function may go by the learning rate before the epoch. When an interrupted epoch begins again, the
    optimizer has the epoch's own rate already. So the state has the rate with which the function was called."""

    def __init__(self, callback: Any) -> None:
        super().__init__(callback)
        self._schedule: Callable[..., Any] = callback.schedule
        self._before: list[Any] = [None, None]  # the epoch that has begun last, and the rate before it
        self._again: list[Any] = [None, None]  # the same of the checkpoint
        callback.schedule = self._rate

    def state_at(self, step: int) -> dict[str, Any]:
        """The epoch and the rate with which the function was called last."""
        return {"before": self._before}

    def fit_is_prepared(self) -> None:
        """The first epoch of a new ``fit`` begins with the optimizer's rate."""
        self._before = self._again = [None, None]

    def model_is_restored(self, model: Any) -> None:
        """The epoch that was interrupted begins with the rate before it."""
        self._again = self.loaded.get("before", [None, None])

    def _rate(self, epoch: int, *rate: float) -> Any:
        """In place of the user's function, which takes the epoch, or the epoch and the rate."""
        if rate and epoch == self._again[0]:
            rate = (self._again[1],)
        if rate:
            self._before = [int(epoch), float(rate[0])]
        return self._schedule(epoch, *rate)


class ModelCheckpoint(CallbackState):
    """Of the files that the callback has written nothing is saved."""

    attributes = ("best", "epochs_since_last_save")

    def state_at(self, step: int) -> dict[str, Any]:
        """With the counts of batches."""
        return {**super().state_at(step), "counts": private_api.saving_counts(self.callback)}

    def recall(self) -> None:
        """With the counts of batches."""
        super().recall()
        _set_counts(self.callback, private_api.saving_counts(self.callback), self.loaded, add=False)


class TensorBoard(CallbackState):
    """The numbers of batches by which plots go. The plots of epochs go by the epoch."""

    def state_at(self, step: int) -> dict[str, Any]:
        """The counts of batches; ``step``: Keras 2's own variable, which ``fit`` sets back."""
        counter = private_api.plotted_step(self.callback)
        counts = private_api.plotting_counts(self.callback)
        return {"counts": counts, "step": None if counter is None else int(counter.numpy())}

    def epochs_begin(self, epoch: int | None) -> None:
        """Goes on counting. Of a model that its first batch builds this batch is counted already."""
        counter, step = private_api.plotted_step(self.callback), self.loaded.get("step")
        _set_counts(self.callback, private_api.plotting_counts(self.callback), self.loaded, add=True)
        if counter is not None and step is not None:
            counter.assign_add(step)


class CSVLogger(CallbackState):
    """The file is cut back to the epochs that are finished. Keras empties it in ``on_train_begin``, before it is known where training goes
    on, unless it is told ``append=True``; so it is told that, and a file that is to be empty is emptied later."""

    def __init__(self, callback: Any) -> None:
        super().__init__(callback)
        if "://" in callback.filename:
            raise OptionError(
                where="extra=",
                expected="a CSVLogger whose file can be cut back",
                found=callback.filename,
                todo="give it a file in a mounted file system, or leave it out of extra=",
            )
        self._append = callback.append
        self._begin = 0  # the offset of this fit's first row
        self._before: int | None = (
            None  # the bytes of the file when the ``fit`` was prepared, None when its first epoch has begun
        )

    def state_at(self, step: int) -> dict[str, Any]:
        """Where this fit's rows begin and end, and the names of its columns."""
        keys = getattr(self.callback, "keys", None)
        end = csv_rows.size(self.callback.filename)
        return {"begin": self._begin, "end": end, "keys": None if keys is None else list(keys)}

    def fit_is_prepared(self) -> None:
        """Keeps the file as it is."""
        self._before, self.callback.append = csv_rows.size(self.callback.filename), True

    def epochs_begin(self, epoch: int | None) -> None:
        """Cuts the file back, if this rank's ``fit`` has the callback."""
        self._before, self.callback.append = None, self._append
        file, path = getattr(self.callback, "csv_file", None), self.callback.filename
        if file is None or getattr(file, "closed", False):
            return
        if self.loaded:
            self._begin, self.callback.keys = self.loaded["begin"], self.loaded["keys"]
            end = self.loaded["end"] if epoch is None else None
            csv_rows.cut(path, csv_rows.end_of_rows(path, self.callback.sep, self._begin, epoch, end))
        else:
            self._begin = csv_rows.size(path) if self._append or epoch is None else 0
            csv_rows.cut(path, self._begin)
        self.callback.append_header = csv_rows.size(path) == 0

    def fit_ended(self) -> None:
        """A ``fit`` with nothing to train leaves the file as it was. Callbacks see an epoch of it if the model was not built."""
        if self._before is not None:
            csv_rows.cut(self.callback.filename, self._before)
            self._before, self.callback.append = None, self._append


_KNOWN: dict[str, type[CallbackState]] = {
    kind.__name__: kind
    for kind in (EarlyStopping, ReduceLROnPlateau, LearningRateScheduler, ModelCheckpoint, CSVLogger, TensorBoard)
}
NAMES = tuple(_KNOWN)


def adapted(thing: Any) -> CallbackState | None:
    """The adapter of a callback of Keras's, or of a class that inherits from one; None for any other object. ``OptionError`` for a callback
    whose state can't be saved."""
    for cls in type(thing).__mro__:
        if cls.__module__.partition(".")[0] in _PACKAGES and cls.__name__ in _KNOWN:
            return _KNOWN[cls.__name__](thing)
    return None


class CallbackStates:
    """The adapters of the callbacks in ``extra=``. Most methods call each adapter's method of the same name."""

    def __init__(self, adapters: Mapping[str, CallbackState]) -> None:
        self._adapters = dict(adapters)

    @property
    def stopping(self) -> dict[str, EarlyStopping]:
        """The adapters of ``EarlyStopping``, by name."""
        return {name: one for name, one in self._adapters.items() if isinstance(one, EarlyStopping)}

    def begin(self, epoch: int | None) -> None:
        """The first epoch begins, with this number; None: a loop does. Gives the callbacks what was loaded."""
        for one in self._adapters.values():
            one.recall()
            one.epochs_begin(epoch)
        self.forget()

    def forget(self) -> None:
        """Forgets what was loaded."""
        for one in self._adapters.values():
            one.loaded = {}

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


def _plain(value: Any) -> Any:
    """None, a whole number or a number, of an attribute of a callback."""
    return value if value is None or type(value) in (bool, int) else np.asarray(value).item()


def _set_counts(callback: Any, now: Mapping[str, Any] | None, state: Mapping[str, Any], add: bool) -> None:
    """Gives the counts that this version of Keras has the values of the ``state``. ``add``: adds these to the present ones."""
    saved = state.get("counts") or {}
    for name, value in (now or {}).items():
        if name in saved:
            setattr(callback, name, value + saved[name] if add else saved[name])


def _rated(model: Any) -> list[tuple[Any, float]]:
    """The model's optimizers that have a learning rate which can be read as a number, each with it."""
    optimizer = getattr(model, "optimizer", None)
    found = []
    for one in getattr(optimizer, "optimizers", [optimizer]):
        with contextlib.suppress(TypeError, ValueError):  # none, or a schedule of Keras 2
            found.append((one, float(np.asarray(getattr(one, "learning_rate", None)))))
    return found
