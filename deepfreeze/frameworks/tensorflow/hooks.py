"""Hooks on one optimizer and one model, through which captures get into the train function. Nothing global is patched. Imports TensorFlow.

There are two hooks. The first is called after ``apply`` (Keras 3) or ``apply_gradients`` (tf_keras), to capture the variables that the
optimizer writes: so upper layers are captured while back-propagation of lower layers goes on. The second is called at the end of
``train_step``, to capture the variables that may change until then (BatchNorm statistics, metrics, seeds).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from deepfreeze.frameworks.tensorflow.steps import Steps
from deepfreeze.state.shadow import shadowed


class Patch:
    """The hooks of one model, from construction to ``close``. While Keras traces the train function, they call ``after_update(step)``
    behind the optimizer's update and ``after_step(step)`` at the end of ``train_step``. ``step`` is an int64 scalar of the graph: the
    number of the step that has just been done. With ``run_eagerly=True`` the calls come in every step."""

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        after_update: Callable[[tf.Tensor], None],
        after_step: Callable[[tf.Tensor], None],
    ) -> None:
        self._model = model
        steps = Steps(optimizer)

        name = "apply" if hasattr(optimizer, "apply") else "apply_gradients"
        applied, stepped = getattr(optimizer, name), model.train_step
        self._hooks: list[tuple[Any, str, Any]] = []

        def apply(*args: Any, **kwargs: Any) -> Any:
            if not self._active:
                return applied(*args, **kwargs)
            # Read before the update, plus 1. The optimizer increments its count last, and every capture would wait for that.
            batches = steps.batches() + 1
            result = applied(*args, **kwargs)
            after_update(steps.ended_by(batches))
            return result

        def train_step(*args: Any, **kwargs: Any) -> Any:
            result = stepped(*args, **kwargs)
            if self._active:
                after_step(steps.ended_by(steps.batches()))
            return result

        # False after close. Another library that has wrapped these hooks goes on calling them then.
        self._active = True
        self._shadows = contextlib.ExitStack()
        for owner, attribute, hook, covered in (
            (optimizer, name, apply, applied),
            (model, "train_step", train_step, stepped),
        ):
            hook.covered = covered  # type: ignore[attr-defined]
            self._hooks.append((owner, attribute, hook))
            self._shadows.enter_context(shadowed(owner, attribute, hook))
        _retrace(model)

    @property
    def in_place(self) -> bool:
        """Whether the model and the optimizer still have these hooks, perhaps below the hooks of another ``Patch``. A user may have put
        another ``train_step`` in their place."""
        return self._active and all(hook in _covered(vars(owner).get(name)) for owner, name, hook in self._hooks)

    def close(self) -> None:
        """Takes the hooks out, and lets the model build its train function anew. Safe to call twice."""
        self._active = False
        self._shadows.close()
        _retrace(self._model)


def _covered(method: Any) -> list[Any]:
    """``method``; and, if it is a hook, the method that the hook has replaced, and so on downwards."""
    found = []
    while method is not None:
        found.append(method)
        method = getattr(method, "covered", None)
    return found


def _retrace(model: Any) -> None:
    """Makes the model build its train function anew, because the old one was traced with other hooks."""
    made = model.make_train_function(force=True)
    if made is not None:
        model.train_function = made
