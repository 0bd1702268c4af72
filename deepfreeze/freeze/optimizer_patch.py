"""Puts the capture behind the optimizer's update, on this one optimizer and this one model: nothing global is patched.
Imports TensorFlow.

Two places. Behind ``apply`` (Keras 3) or ``apply_gradients`` (Keras 2, tf_keras): what the optimizer writes, so that the
upper layers are captured while back-propagation of the lower ones goes on. At the end of ``train_step``: what only lies still
then (BatchNorm statistics, metrics, seeds).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from deepfreeze.freeze.steps import Steps


class Patch:
    """From construction to ``close``, the model's train function calls ``after_update(step)`` and ``after_step(step)`` as it
    is traced; ``step`` is an int64 scalar in the graph: the step that is done then."""

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        after_update: Callable[[tf.Tensor], None],
        after_step: Callable[[tf.Tensor], None],
    ) -> None:
        self._model = model
        steps = Steps(optimizer)

        def apply(original: Callable, *args: Any, **kwargs: Any) -> Any:
            # Read before the update: waiting for the increment, which comes last, would hold up every capture.
            batches = steps.batches() + 1
            result = original(*args, **kwargs)
            after_update(steps.ended_by(batches))
            return result

        def train_step(original: Callable, *args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            after_step(steps.ended_by(steps.batches()))
            return result

        name = "apply" if hasattr(optimizer, "apply") else "apply_gradients"
        self._shadows = [_Shadow(optimizer, name, apply), _Shadow(model, "train_step", train_step)]
        _retrace(model)

    def close(self) -> None:
        """Takes the calls out again."""
        for shadow in reversed(self._shadows):
            shadow.close()
        _retrace(self._model)


class _Shadow:
    """An attribute of one instance in place of its class's method (or of what the user put there)."""

    def __init__(self, owner: Any, name: str, around: Callable) -> None:
        self._owner, self._name = owner, name
        self._before = vars(owner).get(name)
        original = getattr(owner, name)
        self._active = True

        def shadow(*args: Any, **kwargs: Any) -> Any:
            return around(original, *args, **kwargs) if self._active else original(*args, **kwargs)

        self._shadow = shadow
        setattr(owner, name, shadow)

    def close(self) -> None:
        self._active = False
        if vars(self._owner).get(self._name) is not self._shadow:
            return  # somebody has put something over it since, which goes on calling it
        if self._before is None:
            delattr(self._owner, self._name)
        else:
            setattr(self._owner, self._name, self._before)


def _retrace(model: Any) -> None:
    """Makes the model build its train function anew: the old one was traced with, or without, the capture."""
    made = model.make_train_function(force=True)
    if made is not None:
        model.train_function = made
