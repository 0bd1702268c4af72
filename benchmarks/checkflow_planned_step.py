"""A training whose checkpoints follow a plan of the step: the prototypes of ``benchmarks.checkflow``, for one rank. Imports TensorFlow.

Python functions in the train function act when a window of the plan begins: they copy parts, hand copies to the writers, or hand the
variables themselves to them. A function that copies, or holds, a variable takes its handle and does not write to it. TensorFlow takes such
a call for a read: it runs behind the updates before it, and updates behind it wait for it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from benchmarks.checkflow_parts import PAGE, FilePart, PartWriter, Slice
from deepfreeze.frameworks.tensorflow.capture import READS
from deepfreeze.frameworks.tensorflow.hooks import TracedAnew, apply_of
from deepfreeze.frameworks.tensorflow.step_marks import MarkedStep
from deepfreeze.frameworks.tensorflow.variables import tf_variable
from deepfreeze.plan.step import parts as joining
from deepfreeze.plan.step import planning
from deepfreeze.plan.step.marks import MarkPlace
from deepfreeze.plan.step.profile import StepProfile
from deepfreeze.plan.step.step_plan import StepPlan


class NamedStep(MarkedStep):
    """A marked step that knows behind which ops each mark lies. ``behind``: by the name of the place the names of the ops; ``ahead``: the
    ops behind which a function lies that is added before the optimizer has made its own ops. Where a mark is behind an op of the optimizer,
    such a function is behind the gradient that this op needs."""

    def __init__(self, model: Any, optimizer: Any, tensors: Sequence[Any]) -> None:
        self.behind: dict[str, list[str]] = {}
        self.ahead: dict[str, list[str]] = {}
        super().__init__(model, optimizer, tensors)

    def _add(self, place: MarkPlace, behind: Iterable[tf.Operation]) -> None:
        ops = list(behind)
        self.behind[place.name] = [op.name for op in ops]
        self.ahead[place.name] = [op.name for op in self._before_update(ops)]
        super()._add(place, ops)

    def _before_update(self, ops: Sequence[tf.Operation]) -> list[tf.Operation]:
        """The ops that were there when the optimizer was called, and for which ``ops`` wait. An op waits for its inputs, and for the ops
        that have written to a variable before it reads the variable."""
        number = {op.name: at for at, op in enumerate(self._graph.get_operations())}
        found: dict[str, tf.Operation] = {}
        left = [(op, None) for op in ops]  # an op, and which of its outputs is meant
        known = set()
        while left:
            op, output = left.pop()
            # This op hands all gradients on together, and TensorFlow takes it out of the graph.
            passed = op.type == "IdentityN" and output is not None
            if (name := (op.name, output if passed else None)) in known:
                continue
            known.add(name)
            if number[op.name] < self._applied:
                found[op.name] = op
                continue
            for tensor in [op.inputs[output]] if passed else op.inputs:
                if tensor.dtype != tf.resource:
                    left.append((tensor.op, tensor.value_index))
                else:
                    users = [one for one in tensor.consumers() if self._applied <= number[one.name] < number[op.name]]
                    left += [(one, None) for one in users if one.type not in READS]
        return list(found.values())


def file_parts(profile: StepProfile, plan: StepPlan) -> list[FilePart]:
    """The parts of a plan, with their places in a file. Tensors are numbered as those of the profile."""
    members = joining.groups(profile.tensors, planning.part_size(profile.nbytes))
    made, offset = [], 0
    for number, part in enumerate(plan.parts):
        slices, at, end = [], 0, part.begin + part.nbytes
        for tensor in members[part.tensor]:
            nbytes = profile.tensors[tensor].nbytes
            low, high = max(part.begin, at), min(end, at + nbytes)
            if low < high:
                slices.append(Slice(tensor, low - at, high - low))
            at += nbytes
        made.append(FilePart(number, tuple(slices), part.nbytes, offset, part.copy, part.write))
        offset += -(-part.nbytes // PAGE) * PAGE
    return made


@dataclass
class _Acts:
    """The parts with which something is done when a window begins."""

    copies: list[FilePart] = field(default_factory=list)
    directs: list[FilePart] = field(default_factory=list)
    writes: list[FilePart] = field(default_factory=list)


class PlannedStep:
    """A model's train function that follows a plan, from construction to ``close``. ``step``: of the batch under way; the caller sets it
    before each batch. ``begun``: (step, window of the step) -> when the function of that window began, in seconds; windows without one are
    not in it."""

    def __init__(
        self,
        model: Any,
        optimizer: Any,
        variables: Sequence[Any],
        profile: StepProfile,
        plan: StepPlan,
        parts: Sequence[FilePart],
        named: NamedStep,
        writer: PartWriter,
    ) -> None:
        """``variables``: of the profile's tensors; ``named``: the same step, traced with marks."""
        self.step = 0
        self.begun: dict[tuple[int, int], float] = {}
        self._variables, self._profile, self._writer = [tf_variable(one) for one in variables], profile, writer
        self._named = named
        self._windows = len(profile.windows)
        # (window, True for what belongs to the step under way, whose update is done) -> what is done then
        self._acts: dict[tuple[int, bool], _Acts] = defaultdict(_Acts)
        # window -> the parts that are written without a copy, of tensors that are updated in it
        self._gates: dict[int, dict[int, FilePart]] = defaultdict(dict)
        for part in parts:
            if part.copy is None:
                self._acts[self._when(part.write)].directs.append(part)
                for one in part.slices:
                    self._gates[profile.tensors[one.tensor].update][part.number] = part
            else:
                self._acts[self._when(part.copy)].copies.append(part)
                # The store may begin in the window before. A copy that is made in that one is handed on with it.
                if part.write > part.copy + 1:
                    window = (part.write - 1) % self._windows
                    self._acts[window, window == self._windows - 1].writes.append(part)
        # tensor -> the calls that hand it to the writers
        self._begun: dict[int, list[tf.Operation]] = defaultdict(list)
        with tf.init_scope(), tf.device("CPU:0"):
            self._anchor = tf.Variable(False, trainable=False, name="checkflow")
        around = [(optimizer, apply_of(optimizer), self._around_update), (model, "train_step", self._around_step)]
        self._traced = TracedAnew(model, around)

    def close(self) -> None:
        """Gives the model its own function back."""
        self._traced.close()

    def _when(self, window: int) -> tuple[int, bool]:
        return window % self._windows, window < 0

    def _around_update(self, *_: Any, **__: Any) -> Callable[[], None]:
        graph = tf.compat.v1.get_default_graph()
        self._begun.clear()
        for window in range(self._windows):
            self._add(graph, window, early=False)
        for window, parts in self._gates.items():
            self._add_gate(graph, window, list(parts.values()))
        return lambda: None

    def _around_step(self, *_: Any, **__: Any) -> Callable[[], None]:
        graph = tf.compat.v1.get_default_graph()

        def after() -> None:
            for window in range(self._windows):
                self._add(graph, window, early=True)

        return after

    def _add(self, graph: Any, window: int, early: bool) -> None:
        """Adds the function of a window. ``early``: it is for the step under way, whose updates are done."""
        acts = self._acts.get((window, early))
        if acts is None:
            return
        tensors = sorted({one.tensor for part in (*acts.copies, *acts.directs) for one in part.slices})

        def act(*arrays: np.ndarray) -> None:
            # Two functions may have one window: of the step before, and of the step under way.
            self.begun.setdefault((self.step, window), time.perf_counter())
            known = {tensor: array.reshape(-1).view(np.uint8) for tensor, array in zip(tensors, arrays, strict=True)}
            # Copies may wait for room, which comes from writes.
            for part in acts.writes:
                self._writer.due(self._captured(part.write - 1), part)
            for part in acts.directs:
                self._writer.direct(self._captured(part.write), part, _bytes(known, part))
            for part in acts.copies:
                assert part.copy is not None
                self._writer.copied(self._captured(part.copy), part, _bytes(known, part))
                if part.write == part.copy + 1:
                    self._writer.due(self._captured(part.copy), part)

        with tf.control_dependencies(self._begin(graph, window, early)):
            call = self._call(act, tensors)
        for part in acts.directs:
            for one in part.slices:
                self._begun[one.tensor].append(call)

    def _add_gate(self, graph: Any, window: int, parts: Sequence[FilePart]) -> None:
        """Right before the updates of a window: what is not written yet is copied. It is of the checkpoint of the step before."""
        tensors = sorted({one.tensor for part in parts for one in part.slices})
        begun = [call for tensor in tensors for call in self._begun[tensor]]
        with tf.control_dependencies([*begun, *self._begin(graph, window, early=False)]):
            self._call(lambda *_: self._writer.gate(self.step - 1, parts), tensors)

    def _begin(self, graph: Any, window: int, early: bool) -> list[tf.Operation]:
        """The ops that have run when a window begins: those of its own mark and of all marks before it, as in the profile. TensorFlow may
        run these ops in another order. ``early``: the optimizer has made its ops."""
        of = self._named.behind if early else self._named.ahead
        names = dict.fromkeys(name for one in self._profile.windows[: window + 1] for name in of[one.name])
        return [graph.get_operation_by_name(name) for name in names]

    def _captured(self, window: int) -> int:
        """The captured step to which a window belongs that begins in the step under way."""
        return self.step - 1 - window // self._windows

    def _call(self, function: Callable[..., None], tensors: Sequence[int]) -> tf.Operation:
        """A call of a Python function with the values of the tensors, as the arrays that TensorFlow has."""
        variables = [self._variables[tensor] for tensor in tensors]

        def called() -> None:
            tf.compat.v1.get_default_graph().capture(self._anchor.handle)
            values = [tf.raw_ops.ReadVariableOp(resource=one.handle, dtype=one.dtype) for one in variables]
            tf.numpy_function(function, values, [])

        concrete = tf.function(called, autograph=False).get_concrete_function()
        graph = tf.compat.v1.get_default_graph()
        before = len(graph.get_operations())
        concrete()
        return next(op for op in graph.get_operations()[before:] if "PartitionedCall" in op.type)


def _bytes(known: dict[int, np.ndarray], part: FilePart) -> list[np.ndarray]:
    return [known[one.tensor][one.begin : one.begin + one.nbytes] for one in part.slices]
