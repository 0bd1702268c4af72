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
    number of the step that has just been done. With ``run_eagerly=True`` the calls come in every step.

    While ``resting`` is true the hooks call nothing: a function that is traced then, after a ``compile`` for example, has no captures.
    So rank 0 may train it alone, and XLA may compile it."""

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
        self._hooks: list[tuple[Any, str, Any, contextlib.ExitStack]] = []

        def apply(*args: Any, **kwargs: Any) -> Any:
            if not self._calls():
                return applied(*args, **kwargs)
            # Read before the update, plus 1. The optimizer increments its count last, and every capture would wait for that.
            batches = steps.batches() + 1
            result = applied(*args, **kwargs)
            after_update(steps.ended_by(batches))
            return result

        def train_step(*args: Any, **kwargs: Any) -> Any:
            result = stepped(*args, **kwargs)
            if self._calls():
                after_step(steps.ended_by(steps.batches()))
            return result

        # False after close. Another library that has wrapped these hooks goes on calling them then.
        self._active = True
        self.resting = False
        self._missed = False  # a function was traced while resting
        for owner, attribute, hook, covered in (
            (optimizer, name, apply, applied),
            (model, "train_step", train_step, stepped),
        ):
            hook.covered, hook.patch = covered, self  # type: ignore[attr-defined]
            shadow = contextlib.ExitStack()
            self._hooks.append((owner, attribute, hook, shadow))
            shadow.enter_context(shadowed(owner, attribute, hook))
        _retrace(model)

    @property
    def in_place(self) -> bool:
        """Whether the model and the optimizer still have these hooks, perhaps below the hooks of another ``Patch``, and no train
        function was traced without them. A user may have put another ``train_step`` in their place."""
        placed = all(hook in _covered(vars(owner).get(name)) for owner, name, hook, _ in self._hooks)
        return placed and self._active and not self._missed

    def close(self) -> None:
        """Takes the hooks out, and lets the model build its train function anew. Safe to call twice."""
        self._active = False
        for owner, name, _, _ in self._hooks:
            # Those of closed ones that this one covered until now are taken out too.
            while (shadow := _closed(vars(owner).get(name))) is not None:
                shadow.close()
        _retrace(self._model)

    def _shadow(self, hook: Any) -> contextlib.ExitStack | None:
        """What takes ``hook`` out, if this patch is closed and has put it there."""
        return next((shadow for *_, own, shadow in self._hooks if own is hook and not self._active), None)

    def _calls(self) -> bool:
        if self._active and self.resting and not tf.executing_eagerly():
            self._missed = True
        return self._active and not self.resting


def _closed(method: Any) -> contextlib.ExitStack | None:
    """What takes out the hook that ``method`` is; None if it is no hook, or that of a ``Patch`` that is not closed."""
    patch = getattr(method, "patch", None)  # functools.wraps copies it to a user's own
    return patch._shadow(method) if isinstance(patch, Patch) else None


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
