"""The methods that Keras calls on a callback. The class inherits from neither Keras, so that it serves both Keras 3 and tf_keras, and
importing it imports neither."""

from __future__ import annotations

from typing import Any


class Hooks:
    """Every method of ``keras.callbacks.Callback``, each of which does nothing. Keras calls them from the thread that called ``fit``.
    ``params``: what ``set_params`` was given last; ``model``: what ``set_model`` was given last."""

    # Keras 2 asks for these two, and for the three methods named ``_implements_``: ``state/private_names`` has a row for each. With True it
    # passes ``logs`` as tensors, and does not convert them to numbers in each step.
    _supports_tf_logs = True
    _chief_worker_only = False

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self.model: Any = None
        self.validation_data = None

    def set_params(self, params: dict[str, Any]) -> None:
        """Called by Keras before training begins, with some arguments of ``fit``: {"epochs": 3, "steps": 100} for example."""
        self.params = params

    def set_model(self, model: Any) -> None:
        """Called by Keras before training begins, with the model that ``fit`` trains."""
        self.model = model

    def _implements_train_batch_hooks(self) -> bool:
        return type(self).on_train_batch_end is not Hooks.on_train_batch_end

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False

    def _ignore(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Called after each execution of the train function. ``batch``: the number of its last batch in the epoch, from 0."""

    def on_train_begin(self, logs: Any = None) -> None:
        """Called once in each ``fit``, before the train function is traced."""

    def on_train_end(self, logs: Any = None) -> None:
        """Called once in each ``fit``, after the last epoch. Not called if an exception ends training."""

    on_batch_begin = on_batch_end = on_epoch_begin = on_epoch_end = on_train_batch_begin = _ignore
    on_test_begin = on_test_end = on_test_batch_begin = on_test_batch_end = _ignore
    on_predict_begin = on_predict_end = on_predict_batch_begin = on_predict_batch_end = _ignore
