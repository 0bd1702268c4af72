"""Marks in the traced step: ops, ``DeepfreezeMark``, that note when they run. Imports TensorFlow.

The traced graph shows where marks belong: at the beginning of ``train_step``, before the first op that uses a weight, behind each gradient
as the optimizer gets it, before each update and behind it, and at the end. A mark *behind* the op that uses a weight would keep TensorFlow
from making one op of it and of those that follow, an addition of a bias and an activation. Vectors have no marks of their own in the
forward pass for the same reason.

A mark must not change the step. So nothing waits for it, and it waits for the ops that it marks alone. Automatic control dependencies would
put ops that have effects and touch no variable in the order in which they were made. So a mark is a call of a function that takes the
handle of a variable and does not write to it. TensorFlow takes such calls for reads, and reads need no order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

import veloc_bindings
from deepfreeze.format.tensors import REPLICATED
from deepfreeze.frameworks.tensorflow.hooks import TracedAnew, apply_of
from deepfreeze.frameworks.tensorflow.own_variables import own_variable
from deepfreeze.frameworks.tensorflow.variables import tf_variable
from deepfreeze.frameworks.tensorflow.written_variables import READS, writes
from deepfreeze.plan.step import marks
from deepfreeze.plan.step.marks import MarkPlace
from deepfreeze.state.training_state import StateTensor

# Of the marks between the first one and the last one: how many are for each phase. An update has two.
_FORWARD, _BACKWARD = 12, 12
_UPDATES = (marks.MOST - 2 - _FORWARD - _BACKWARD) // 2


@dataclass(frozen=True)
class _Point:
    """Something of the step that concerns a tensor. ``at``: its place in the order of the step, as numbers of ops of the graph; ``ops``:
    its mark runs when these ops have run."""

    tensor: int
    at: tuple[int, ...]
    ops: tuple[tf.Operation, ...]


class MarkedStep:
    """A model's train function with marks, from construction to ``close``. The model has the function that it had before then, which is not
    traced again. ``places``: of the marks; empty before the first marked step has been traced. ``area``: the marks are its own."""

    def __init__(self, model: Any, optimizer: Any, tensors: Sequence[StateTensor]) -> None:
        """``tensors``: those that are saved, in the order of their numbers. ``EngineFault`` if TensorFlow refuses the engine's ops."""
        veloc_bindings.register_tensorflow()
        self.places: list[MarkPlace] = []
        self.area = veloc_bindings.Area()
        self.area.marks(marks.MOST)
        self._tensors = tensors
        self._gradients: dict[int, tf.Operation] = {}  # id() of a variable -> the op that makes its gradient
        self._applied = 0  # how many ops there were when the optimizer was called
        self._anchor = own_variable(False, "deepfreeze_marks")
        self._graph: Any = None  # of the step that is being traced
        around = [(optimizer, apply_of(optimizer), self._around_update), (model, "train_step", self._around_step)]
        self._traced = TracedAnew(model, around)

    def close(self) -> None:
        """Ends the marks. Safe to call twice."""
        self._traced.close()
        self.area.close()

    def take(self) -> list[veloc_bindings.StepMark]:
        """The notes of all marks since the last call."""
        return self.area.marked(marks.MOST)[: len(self.places)]

    def _around_update(self, gradients: Any = (), variables: Any = None, *_: Any, **__: Any) -> Callable[[], None]:
        graph = tf.compat.v1.get_default_graph()
        # In another function, which the step calls, there is nothing that could be marked.
        if tf.executing_eagerly() or graph is not self._graph:
            return _nothing
        self._applied = len(graph.get_operations())
        for gradient, variable in _pairs(gradients, variables):
            tensor = getattr(gradient, "values", gradient)  # of an IndexedSlices
            if isinstance(tensor, tf.Tensor) and tensor.graph is graph:
                self._gradients[id(tf_variable(variable))] = tensor.op
        return _nothing

    def _around_step(self, *_: Any, **__: Any) -> Callable[[], None]:
        if tf.executing_eagerly():
            return _nothing
        graph = self._graph = tf.compat.v1.get_default_graph()
        before = graph.get_operations()
        self._gradients, self._applied = {}, len(before)
        batch = [tensor.op for tensor in graph.inputs if tensor.dtype != tf.resource]
        batch = batch or [op for op in before if op.type.startswith("IteratorGetNext")]
        return lambda: self._mark(graph, batch, len(before))

    def _mark(self, graph: Any, batch: Sequence[tf.Operation], begin: int) -> None:
        """At the end of ``train_step``: adds the marks."""
        ops = graph.get_operations()
        at = {op.name: number for number, op in enumerate(ops)}
        ready = _ready(ops, self._applied)
        uses, gradients, first_writes, last_writes, again = [], [], [], {}, []
        for number, tensor in enumerate(self._tensors):
            if tensor.spec.role != REPLICATED:
                continue  # taken at the end of the step
            variable = tf_variable(tensor.variable)
            handle = graph.capture(variable.handle)
            consumers = [op for op in sorted(handle.consumers(), key=lambda op: at[op.name]) if at[op.name] >= begin]
            writers = [op for op in consumers if writes(op, handle)]
            readers = [op for op in consumers if op not in writers and at[op.name] < self._applied]
            if readers and len(tensor.spec.shape) > 1:
                used = min(_users(readers[0]), key=lambda op: at.get(op.name, len(ops)), default=readers[0])
                needed = [
                    tensor.op for tensor in used.inputs if tensor.dtype != tf.resource and tensor.op not in readers
                ]
                uses.append(_Point(number, (at[used.name],), tuple(needed or batch)))
            gradient = self._gradients.get(id(variable))
            if gradient is not None:
                gradients.append(_Point(number, (at[gradient.name],), (gradient,)))
            if writers:
                first = writers[0]
                needed = [tensor.op for tensor in first.inputs if tensor.dtype != tf.resource]
                # A count needs nothing of the step, so its update may run before the batch is there. Its few bytes do not matter. So a
                # count comes last, where it does not move the mark of a group's other tensors.
                behind = ready[first.name] or len(ops)
                first_writes.append(_Point(number, (behind, at[first.name]), (*needed, *batch)))
                last_writes[number] = writers[-1]
                if len(writers) > 1:
                    again.append(number)
        self.places = []
        self._add(MarkPlace("the batch", "forward"), batch)
        for group in self._groups(uses, _FORWARD)[1:]:  # the first one begins with the batch
            self._add(MarkPlace(f"use of {self._name(group)}", "forward"), group[0].ops)
        for group in self._groups(gradients, _BACKWARD):
            self._add(MarkPlace(f"gradient of {self._name(group)}", "backward"), group[-1].ops)
        for group in self._groups(first_writes, _UPDATES):
            written = tuple(point.tensor for point in group)
            once = tuple(tensor for tensor in written if tensor not in again)
            self._add(MarkPlace(f"update of {self._name(group)}", "update", written), group[0].ops)
            if once:
                place = MarkPlace(f"{self._name(group)} updated", "update", (), once)
                self._add(place, [last_writes[tensor] for tensor in once])
        # When a tensor is written to again is known of the end alone.
        self._add(MarkPlace("the end", "between", (), tuple(again)), [*last_writes.values()] or ops[-1:])

    def _groups(self, points: Sequence[_Point], most: int) -> list[list[_Point]]:
        """Neighbours in the graph that have one mark together."""
        points = sorted(points, key=lambda point: point.at)
        sizes = [self._tensors[point.tensor].spec.nbytes for point in points]
        return [[points[number] for number in group] for group in marks.grouped(sizes, most)]

    def _name(self, group: Sequence[_Point]) -> str:
        """The first tensor of a group, and how many more there are."""
        first, more = self._tensors[group[0].tensor].spec.name, len(group) - 1
        return f"{first} and {more} more" if more else first

    def _add(self, place: MarkPlace, behind: Iterable[tf.Operation]) -> None:
        with tf.control_dependencies(list(behind)):
            _mark_of(self.area, len(self.places), self._anchor)()
        self.places.append(place)


def _mark_of(area: veloc_bindings.Area, number: int, anchor: tf.Variable) -> Any:
    """The function that lets a mark note. ``anchor``: see above."""

    def mark() -> None:
        graph = tf.compat.v1.get_default_graph()
        graph.capture(anchor.handle)
        value = tf.compat.v1.AttrValue
        attributes = {"area": value(i=area.number), "number": value(i=number)}
        graph.create_op("DeepfreezeMark", [], [], attrs=attributes, name="deepfreeze_mark")

    return tf.function(mark, autograph=False).get_concrete_function()


def _ready(ops: Sequence[tf.Operation], applied: int) -> dict[str, int]:
    """The name of each op -> a number in ``ops``. For an op before ``applied``, where the optimizer was called, it is the op's own number.
    For an op of the optimizer it is the number of the last op before ``applied`` for which that op waits, mostly that of a gradient; 0 if
    there is none. An op waits for its inputs, and for the last op that has written to a variable which it takes.

    Gradients are made from the last layer to the first one, and updates in the order of the layers. So the first update in the graph is the
    last one that may run."""
    found = {op.name: number for number, op in enumerate(ops[:applied])}
    written: dict[str, int] = {}  # by the handle of a variable
    for op in ops[applied:]:
        handles = [tensor.name for tensor in op.inputs if tensor.dtype == tf.resource]
        values = [_ready_of(tensor, found) for tensor in op.inputs if tensor.dtype != tf.resource]
        found[op.name] = max([*values, *(written.get(handle, 0) for handle in handles)], default=0)
        if op.type not in READS:
            written |= dict.fromkeys(handles, found[op.name])
    return found


def _ready_of(tensor: tf.Tensor, found: dict[str, int]) -> int:
    """The number for the op that makes a tensor, see ``_ready``. An ``IdentityN`` hands all gradients on together, and TensorFlow takes it
    out of the graph, so the op behind it counts. The loops of TensorFlow 1 may have an input that is made later: 0."""
    while tensor.op.type == "IdentityN":
        tensor = tensor.op.inputs[tensor.value_index]
    return found.get(tensor.op.name, 0)


def _users(reader: tf.Operation) -> list[tf.Operation]:
    """The ops that use the value that an op has read."""
    return [op for tensor in reader.outputs for op in tensor.consumers()]


def _pairs(gradients: Any, variables: Any) -> list[tuple[Any, Any]]:
    """Gradients with their variables, from the arguments of ``apply`` (Keras 3) or ``apply_gradients`` (tf_keras). Empty if they can't be
    looked at without using them up."""
    if not isinstance(gradients, list | tuple):
        return []
    if variables is not None:
        return list(zip(gradients, variables, strict=False))
    return [pair for pair in gradients if isinstance(pair, tuple) and len(pair) == 2]


def _nothing() -> None:
    """Behind a method that needs no look at what it has done."""
