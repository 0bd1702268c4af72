"""Hooks on one optimizer and one model, through which captures get into the train function. Nothing global is patched. Imports TensorFlow.

Captures have three hooks. The first is called after ``apply`` (Keras 3) or ``apply_gradients`` (tf_keras), to capture the variables that
the optimizer writes: so upper layers are captured while back-propagation of lower layers goes on. The second is called at the end of
``train_step``, to capture the variables that may change until then (BatchNorm statistics, metrics, seeds); and at its beginning, to copy
what the step before has left to this one. The third is called where a callback has the train function made anew inside of a ``fit``
(``make_train_function``), and sees to it that the new function has the other two. Beside these, a hook on each of the model's optimizers
notes for which variables it is called (``state.applied``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from deepfreeze.errors import UnsupportedError
from deepfreeze.frameworks.tensorflow.steps import Steps
from deepfreeze.state import applied, private_api
from deepfreeze.state.keras_objects import optimizers, variable_name
from deepfreeze.state.shadow import shadowed
from deepfreeze.state.unbuilt import line_for_compiled, placeholders

# To be called before a method is called, with its arguments; returns the function to be called after it.
Around = Callable[..., Callable[[], None]]


class Patch:
    """The calls into one model's training, from construction to ``close``. While Keras traces the train function, ``before_step()`` is
    called at the beginning of ``train_step``, ``after_update(step)`` behind the optimizer's update, and ``after_step(step)`` at the end.
    ``step`` is an int64 scalar of the graph: the number of the step that has just been done. With ``run_eagerly=True`` the calls come in
    every step. A train function that is made anew makes the calls too; ``remade`` is True then, until the caller sets it back.

    While ``resting`` is true nothing is called: a function that is traced then, after a ``compile`` for example, has no captures. So
    rank 0 may train it alone, and XLA may compile it."""

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        before_step: Callable[[], None],
        after_update: Callable[[tf.Tensor], None],
        after_step: Callable[[tf.Tensor], None],
    ) -> None:
        self.resting = False
        self.remade = False
        self._missed = False  # a function was traced while resting
        self._model = model
        steps = Steps(optimizer)

        def around_update(*_: Any, **__: Any) -> Callable[[], None]:
            # Read before the update, plus 1. The optimizer increments its count last, and every capture would wait for that.
            batches = steps.batches() + 1
            return lambda: after_update(steps.ended_by(batches))

        def around_step(*_: Any, **__: Any) -> Callable[[], None]:
            before_step()
            return lambda: after_step(steps.ended_by(steps.batches()))

        self._hooks = [
            (Hook.on(optimizer, apply_of(optimizer)), self._unless_resting(around_update)),
            (Hook.on(model, "train_step"), self._unless_resting(around_step)),
            (Hook.on(model, "make_train_function"), self._around_making),
        ]
        self._notes = [(Hook.on(one, apply_of(one)), noting(model, one)) for one in optimizers(model).values()]
        for hook, around in [*self._hooks, *self._notes]:
            hook.calls.append(around)
        make_anew(model)
        self.remade = False

    @property
    def in_place(self) -> bool:
        """Whether the next train function that is traced makes the calls, and so did all that were traced until now. A user may have put
        another ``train_step`` in place of the hook."""
        return not self._missed and all(hook.in_place and around in hook.calls for hook, around in self._hooks)

    def close(self) -> None:
        """Ends the calls, and lets the model build its train function anew. Safe to call twice."""
        for hook, around in [*self._hooks, *self._notes]:
            hook.remove(around)
        make_anew(self._model)

    def _around_making(self, *_: Any, **__: Any) -> Callable[[], None]:
        if not self.resting:
            self._hooks = [(_put_in(hook, around), around) for hook, around in self._hooks]
            self.remade = True
        return _nothing

    def _unless_resting(self, around: Around) -> Around:
        def call(*args: Any, **kwargs: Any) -> Callable[[], None]:
            if not self.resting:
                return around(*args, **kwargs)
            self._missed = self._missed or not tf.executing_eagerly()
            return _nothing

        return call


class Hook:
    """A function in place of one method of one instance: it calls the method, and ``calls`` around it. One hook serves all patches of the
    instance. It is taken out with its last call."""

    def __init__(self, owner: Any, name: str) -> None:
        self.calls: list[Around] = []
        self.owner, self.name = owner, name
        method = getattr(owner, name)

        def function(*args: Any, **kwargs: Any) -> Any:
            if name in _APPLY:
                args, kwargs = _readable_twice(args), dict(zip(kwargs, _readable_twice(kwargs.values()), strict=True))
            behind = [around(*args, **kwargs) for around in self.calls]
            result = method(*args, **kwargs)
            for call in behind:
                call()
            return result

        function.hook = self  # type: ignore[attr-defined]
        self._function = function
        self._shadow = contextlib.ExitStack()
        self._shadow.enter_context(shadowed(owner, name, function))

    @classmethod
    def on(cls, owner: Any, name: str) -> Hook:
        """The hook of this method; a new one if there is none, or if a user has covered it by a method of their own."""
        hook = getattr(vars(owner).get(name), "hook", None)
        return hook if isinstance(hook, Hook) and hook.in_place else cls(owner, name)

    @property
    def in_place(self) -> bool:
        """Whether the instance's method is this hook."""
        return vars(self.owner).get(self.name) is self._function

    def remove(self, around: Around) -> None:
        """Ends these calls. A method that a user has put over the hook stays, and may go on calling the hook."""
        if around in self.calls:
            self.calls.remove(around)
        if not self.calls:
            self._shadow.close()


def _put_in(hook: Hook, around: Around) -> Hook:
    """The hook that makes these calls: ``hook``, or a new one over the method that a user has put in its place."""
    if hook.in_place:
        return hook
    hook.remove(around)  # the user's method may go on calling it
    hook = Hook.on(hook.owner, hook.name)
    hook.calls.append(around)
    return hook


@tf.autograph.experimental.do_not_convert
def _nothing() -> None:
    """Behind a method that is called while a patch rests."""


_APPLY = ("apply", "apply_gradients")


def apply_of(optimizer: Any) -> str:
    """The name of the method that updates the variables: ``apply`` in Keras 3, ``apply_gradients`` in tf_keras."""
    return _APPLY[0] if hasattr(optimizer, _APPLY[0]) else _APPLY[1]


def noting(model: Any, optimizer: Any) -> Around:
    """The call around ``apply_of(optimizer)`` that notes for which variables ``train_step`` calls it (``state.applied``)."""

    @tf.autograph.experimental.do_not_convert
    def note(pairs: Any = (), variables: Any = None, *_: Any, **named: Any) -> Callable[[], None]:
        if tf.executing_eagerly() and applied.applied(model, optimizer):
            return _nothing  # run_eagerly=True: the first step is enough, and all others are faster
        if apply_of(optimizer) == _APPLY[1]:
            variables = [variable for _, variable in named.get("grads_and_vars", pairs)]
        else:
            variables = named.get("trainable_variables", variables)
        applied.note(model, optimizer, variables or ())
        if applied.is_assumed(model, optimizer):
            _require_listed(model, applied.applied(model, optimizer))
        return _nothing

    return note


def _require_listed(model: Any, variables: Sequence[Any]) -> None:
    """``UnsupportedError`` if an optimizer that was built for the model's trainable variables is given others."""
    listed = {id(variable) for variable in model.trainable_variables}
    others = [variable_name(variable) for variable in variables if id(variable) not in listed]
    if others:
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        error = UnsupportedError(
            where="deepfreeze.Checkpoint",
            expected="a train_step that trains the variables in model.trainable_variables, for which the optimizer was built",
            found=f"one that trains {', '.join(others[:3])}{more} too, and that can't be traced before its first step",
            todo=f"call {line_for_compiled()} before fit{placeholders([line_for_compiled()])}",
        )
        private_api.passed_through(error)
        raise error


def _readable_twice(values: Iterable[Any]) -> tuple[Any, ...]:
    """The values, with a list in the place of what ``zip`` and the like give, which can be read only once."""
    return tuple(list(value) if isinstance(value, Iterator) else value for value in values)


def make_anew(model: Any) -> None:
    """Makes the model build its train function anew, because the old one was traced with other calls. Does nothing while the model is
    ``being_traced``."""
    if id(model) in _being_traced:
        return
    made = model.make_train_function(force=True)
    if made is not None:
        model.train_function = made


class TracedAnew:
    """A train function that is traced with calls around methods, from construction to ``close``. Then the model has the function again that
    it had before, which is not traced once more. A train function that somebody else has made meanwhile stays."""

    def __init__(self, model: Any, around: Sequence[tuple[Any, str, Around]]) -> None:
        """``around``: the object, the name of its method, and the call around that method."""
        self._model, self._before = model, model.train_function
        self._hooks = [(Hook.on(owner, name), call) for owner, name, call in around]
        for hook, call in self._hooks:
            hook.calls.append(call)
        make_anew(model)
        self._own = model.train_function

    def close(self) -> None:
        """Ends the calls. Safe to call twice."""
        for hook, call in self._hooks:
            hook.remove(call)
        if self._hooks and self._model.train_function is self._own:
            self._model.train_function = self._before
        self._hooks = []


# Models, by id(), whose train function is being traced and has not come to train_step yet: it will be traced with all hooks.
_being_traced: set[int] = set()


@contextlib.contextmanager
def being_traced(model: Any) -> Iterator[None]:
    """Within the ``with`` block hooks are put on while the model's train function is being traced, before ``train_step`` is called."""
    _being_traced.add(id(model))
    try:
        yield
    finally:
        _being_traced.discard(id(model))
