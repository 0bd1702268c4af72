"""The first trace of a model's train function, in which Keras builds a model that is not built when ``fit`` begins, and a ``train_step`` of
the user's its optimizers. Imports TensorFlow.

A callback never sees the data, but ``train_step`` does. So ``train_step`` is replaced on the instance when ``fit`` begins. When Keras
traces the replacement, the user's own ``train_step`` is traced once and not run: this makes all variables, of optimizers and metrics too.
What needs the variables (restoring, capturing) is then done outside of the graph, and Keras goes on tracing the user's step. If nothing
is left to train, no step gets into the graph: the execution does nothing, and ``fit`` ends with it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from deepfreeze.errors import UnsupportedError
from deepfreeze.frameworks.tensorflow.hooks import Hook, apply_of, being_traced, make_anew, noting
from deepfreeze.frameworks.tensorflow.variables import tf_variable
from deepfreeze.process_state import PROCESS
from deepfreeze.state import applied, private_api
from deepfreeze.state.keras_objects import is_built, optimizer_variables, optimizers
from deepfreeze.state.shadow import shadowed
from deepfreeze.state.unbuilt import (
    INPUT_SHAPE,
    line_for_compiled,
    placeholders,
    unbuilt_layers,
    unbuilt_optimizers,
    unseen_optimizers,
)


def lines_to_build(model: Any, shape: str = INPUT_SHAPE, everywhere: bool = False) -> list[str]:
    """The lines that would build what is not built of ``model``; an empty list if its training can begin. ``shape``: see
    ``unbuilt_layers``; ``everywhere``: see ``unbuilt_optimizers``."""
    return layers_to_build(model, shape) + unbuilt_optimizers(model, everywhere)


def layers_to_build(model: Any, shape: str = INPUT_SHAPE) -> list[str]:
    """As ``lines_to_build``, without the optimizers."""
    return [] if model in PROCESS.traced_models else unbuilt_layers(model, shape)


def begins_with_trace(model: Any) -> bool:
    """Whether the training of ``model`` begins in the first trace: because the model is not built, or because its own ``train_step`` builds
    an optimizer there, with the variables that it trains."""
    return bool(lines_to_build(model) or unseen_optimizers(model))


def build_by(model: Any, shapes: Any) -> None:
    """Makes all variables of a compiled ``model``, of its metrics too, by tracing its ``train_step`` without running it. ``shapes``: the
    structure of what ``train_step`` gets, with objects in the place of arrays that have their ``shape`` (None where the size is unknown)
    and ``dtype``. Raises ``UnsupportedError``."""
    specifications = tf.nest.map_structure(lambda one: tf.TensorSpec(one.shape, one.dtype), shapes)
    lines = _needed(model, _shape_of(specifications))
    failure = _trace(model, model.train_step, (specifications,), {})
    if failure is not None and lines:
        raise _impossible(
            f"a train_step that can't be traced before: {type(failure).__name__}: {failure}", lines
        ) from failure
    if failure is None:
        PROCESS.traced_models.add(model)


def _needed(model: Any, shape: str = INPUT_SHAPE) -> list[str]:
    """The lines without which ``model`` can't be trained if its ``train_step`` can't be traced before. An empty list if nothing but the
    compiled optimizer is not built: then it is built from the model's trainable variables, and the captures' hooks refuse a step that
    trains others."""
    return lines_to_build(model, shape, everywhere=bool(unseen_optimizers(model)))


class FirstTrace:
    """The replacement of one model's ``train_step``, from ``of`` until its first call, or until ``close``. The training thread calls all
    methods. ``done``: whether either has come."""

    def __init__(self, model: Any) -> None:
        """To be called while ``on_train_begin`` runs."""
        self.done = False
        self._model, self._step = model, model.train_step
        self._actions: dict[Any, Callable[[], None]] = {}
        self._over = False  # nothing is left to train
        self._shadow = contextlib.ExitStack()
        self._before = _scalars(model)

        self._covered: Callable[..., Any] | None = None  # the step with the captures, below a function of a callback's

        def train_step(*args: Any, **kwargs: Any) -> Any:
            # Keras 3 keeps this function in its train function. So it is called when a batch of another shape is traced, too.
            self._begin(args, kwargs)
            return (self._covered or self._model.train_step)(*args, **kwargs)

        train_step.first_trace = self  # type: ignore[attr-defined]
        self._function = train_step
        self._shadow.enter_context(shadowed(model, "train_step", train_step))
        make_anew(model)

    @classmethod
    def of(cls, model: Any) -> FirstTrace:
        """The replacement that waits for the model's first trace already; else a new replacement."""
        waiting = getattr(vars(model).get("train_step"), "first_trace", None)
        return waiting if isinstance(waiting, FirstTrace) and not waiting.done else cls(model)

    def then(self, who: Any, action: Callable[[], None]) -> None:
        """Has ``action`` called once, outside of the graph, when all variables exist and no step has run. Actions are called in the order
        in which they were given; a second one of the same callback ``who`` takes the place of its first. The training ends with what
        an action raises."""
        self._actions[who] = action
        self._before = _scalars(self._model)

    def leave_steps_out(self) -> None:
        """To be called by an action: nothing is left to train, so ``fit`` ends with this execution, and no step is run."""
        self._over = True

    def forget(self, who: Any) -> None:
        """Takes the action of ``who`` back, if it is still to come: ``fit`` has ended before its first batch."""
        self._actions.pop(who, None)
        if not self._actions:
            self.close()

    def executed(self) -> None:
        """To be called after an execution. ``UnsupportedError`` if it has not called ``train_step``."""
        if not self.done:
            lines = _needed(self._model) or [line_for_compiled()]
            raise _impossible("a train function that does not call model.train_step", lines)
        self._shadow.close()

    def close(self) -> None:
        """Forgets the actions, and takes the replacement out of the model. Safe to call twice."""
        self._actions.clear()
        self.done = True
        self._shadow.close()

    @tf.autograph.experimental.do_not_convert
    def _begin(self, args: Any, kwargs: Any) -> None:
        if self.done:
            return
        actions = list(self._actions.values())
        cover = vars(self._model).get("train_step")
        lines = _needed(self._model, _shape_of(args))
        self.close()
        try:
            if cover is not self._function and lines:
                raise _impossible("a callback that has replaced model.train_step", lines)
            self._build(args, kwargs, lines)
            with tf.init_scope(), contextlib.ExitStack() as uncovered:
                if cover is not self._function:
                    uncovered.enter_context(self._below(cover))
                with being_traced(self._model):
                    self._run(actions)
                if self._over:
                    self._end()
        except Exception as error:
            private_api.passed_through(error)
            raise

    @contextlib.contextmanager
    def _below(self, cover: Any) -> Iterator[None]:
        """Within the ``with`` block hooks are put on the step that was there before, not on ``cover``, the function in which a callback has
        wrapped the replacement of ``train_step``, and which is running."""
        vars(self._model)["train_step"] = self._step
        try:
            yield
        finally:
            self._covered = self._model.train_step
            vars(self._model)["train_step"] = cover

    def _run(self, actions: list[Callable[[], None]]) -> None:
        set_before = {id(variable): value for variable, value in _scalars(self._model)}
        for action in actions:
            action()
        # Keras resets the metrics when an epoch begins. What a checkpoint has of them belongs to the epoch in which it was made.
        self._model.reset_metrics()
        # Callbacks may have set variables since ``fit`` began, such as this epoch's learning rate. With a built model they would have
        # done so after the restore, so their values are set again.
        for variable, value in self._before:
            if not np.array_equal(set_before[id(variable)], value):
                tf_variable(variable).assign(set_before[id(variable)])

    def _end(self) -> None:
        """Ends ``fit`` with the execution that is being traced, and leaves all its steps out. Keras 2 calls ``train_step`` more than once
        in the trace of an execution of several steps."""
        model, step = self._model, self._model.train_step

        def no_step(*args: Any, **kwargs: Any) -> Any:
            if (
                not model.stop_training
            ):  # Keras has set it back: the next ``fit`` has begun, and nobody has called ``executed``
                return step(*args, **kwargs)
            return {"deepfreeze_steps": tf.constant(0)}  # Keras wants a figure: none of the names that callbacks go by

        model.stop_training = True
        self._shadow.enter_context(shadowed(model, "train_step", no_step))
        make_anew(
            model
        )  # for the next ``fit``: Keras keeps the function that is being traced only until it has returned

    def _build(self, args: Any, kwargs: Any, lines: list[str]) -> None:
        """Makes all variables, by tracing the user's step without running it. ``lines``: see ``_needed``."""
        failure = _trace(self._model, self._step, args, kwargs)
        if failure is None:
            PROCESS.traced_models.add(self._model)
        if failure is None or not lines:
            return
        if not tf.executing_eagerly():
            try:
                self._step(*args, **kwargs)
            except Exception as error:
                if type(error) is type(failure):
                    raise  # the step fails without DeepFreeze too
        found = f"a train_step that can't be traced in another thread before: {type(failure).__name__}: {failure}"
        raise _impossible(found, lines) from failure


def _trace(model: Any, step: Callable[..., Any], args: Any, kwargs: Any) -> Exception | None:
    """Traces ``step`` once, without running it. Returns the exception that has ended it, None if there was none. The trace has a thread of
    its own: in this thread a gradient tape would record nothing, because it is below ``tf.init_scope``, or belong to another graph."""
    specifications = tf.nest.map_structure(_specification, (args, kwargs))
    states = private_api.thread_states()
    failures: list[Exception] = []
    calls: list[None] = []

    def once(*args: Any, **kwargs: Any) -> Any:
        # TensorFlow traces a function that has made variables a second time.
        if calls:
            raise _Done
        calls.append(None)
        # A tf.function inside of the step keeps what it has traced. It must be traced anew with the captures.
        with private_api.traced_apart():
            return step(*args, **kwargs)

    def trace() -> None:
        mine = private_api.thread_states()
        _copy(states, mine)
        try:
            # Keras 2 has autograph convert train_step, Keras 3 has not.
            with _optimizers_noted(model):
                tf.function(once, autograph=not hasattr(model, "stateless_call")).get_concrete_function(
                    *specifications[0], **specifications[1]
                )
        except _Done:
            pass
        except Exception as error:
            failures.append(error)
        _copy(mine, states_after)

    states_after: list[dict[str, Any]] = [{} for _ in states]
    in_own_thread(trace)
    _copy(states_after, states)
    if not failures:
        applied.seen(model, optimizers(model).values())
    return failures[0] if failures else None


def in_own_thread(action: Callable[[], None]) -> None:
    """Runs ``action`` in a new thread, which knows nothing of the graph that this one traces. Waits for it, and raises what it raises."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="deepfreeze-first-trace", daemon=True)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


class _Done(Exception):
    """The first trace is complete."""

    ag_pass_through = True


def _copy(states: list[dict[str, Any]], to: list[dict[str, Any]]) -> None:
    for state, other in zip(states, to, strict=True):
        other.update(state)


def _scalars(model: Any) -> list[tuple[Any, np.ndarray]]:
    """The scalar variables that the model's optimizers have now, with their values."""
    variables = [v for one in optimizers(model).values() for v in optimizer_variables(one)]
    return [(v, tf_variable(v).numpy()) for v in variables if not len(tf_variable(v).shape)]


@contextlib.contextmanager
def _optimizers_noted(model: Any) -> Iterator[None]:
    """Notes for which variables optimizers are called. Has them set the first values of their own variables outside of the graph, as they
    do where ``build`` is called before ``fit``: in the graph an optimizer that begins with copies of the weights would set them in each
    step."""

    def outside(optimizer: Any, build: Callable[..., Any]) -> Callable[..., Any]:
        def build_outside(variables: Any) -> Any:
            if not is_built(optimizer):  # Keras 2 calls it in each update
                applied.note_built(model, optimizer, variables)
            with tf.init_scope():
                return build(variables)

        return build_outside

    with contextlib.ExitStack() as shadows:
        for one in optimizers(model).values():
            hook, note = Hook.on(one, apply_of(one)), noting(model, one)
            hook.calls.append(note)
            shadows.callback(hook.remove, note)
            if not is_built(one) and hasattr(one, "build"):
                shadows.enter_context(shadowed(one, "build", outside(one, one.build)))
        yield


def _specification(value: Any) -> Any:
    """The specification of a tensor; anything else as it is."""
    return tf.type_spec_from_value(value) if tf.is_tensor(value) else value


def _shape_of(args: Any) -> str:
    """The shape of the batch's first part as code, "input_shape" if it is not one tensor of known rank."""
    x = args[0] if args else None
    x = x[0] if isinstance(x, (tuple, list)) and x else x
    shape = getattr(x, "shape", None)
    if not tf.is_tensor(x) or shape is None or shape.rank is None:
        return INPUT_SHAPE
    return str((None, *list(shape)[1:]))


def _impossible(found: str, lines: list[str]) -> UnsupportedError:
    expected, todo = (
        "a model that is built, or that its first batch can build",
        f"call {' and '.join(lines)} before fit{placeholders(lines)}",
    )
    return UnsupportedError(where="deepfreeze.Checkpoint", expected=expected, found=found, todo=todo)
