"""What a Keras callback must have, without inheriting from either Keras: one class serves Keras 3 and tf_keras, and
importing it imports neither."""

from __future__ import annotations

from typing import Any


class Hooks:
    """Every hook of ``keras.callbacks.Callback``, doing nothing."""

    # tf_keras: logs may stay tensors, so the hooks cost no conversion.
    _supports_tf_logs = True
    _chief_worker_only = False

    def __init__(self) -> None:
        self.params: dict[str, Any] = {}
        self.model: Any = None
        self.validation_data = None

    def set_params(self, params: dict[str, Any]) -> None:
        """Called by Keras with the arguments of ``fit``."""
        self.params = params

    def set_model(self, model: Any) -> None:
        """Called by Keras with the model being trained."""
        self.model = model

    def _implements_train_batch_hooks(self) -> bool:
        return type(self).on_train_batch_end is not Hooks.on_train_batch_end

    def _implements_test_batch_hooks(self) -> bool:
        return False

    def _implements_predict_batch_hooks(self) -> bool:
        return False

    def _ignore(self, *args: Any, **kwargs: Any) -> None:
        """Not of interest."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """After each execution of the train function."""

    def on_train_begin(self, logs: Any = None) -> None:
        """Before the train function is traced."""

    def on_train_end(self, logs: Any = None) -> None:
        """After the last epoch."""

    on_batch_begin = on_batch_end = on_epoch_begin = on_epoch_end = on_train_batch_begin = _ignore
    on_test_begin = on_test_end = on_test_batch_begin = on_test_batch_end = _ignore
    on_predict_begin = on_predict_end = on_predict_batch_begin = on_predict_batch_end = _ignore
