"""Captures a model's training state in TensorFlow's graph: each tensor's shard is copied right after the last write to the tensor in the
step. Imports TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

import veloc_bindings
from deepfreeze.errors import EngineError, UnsupportedError
from deepfreeze.format.tensors import PER_RANK, RANK_LOCAL, REPLICATED
from deepfreeze.frameworks.state_capture import CapturedState, EngineMemory, Piece
from deepfreeze.frameworks.tensorflow.buffers import Buffers
from deepfreeze.frameworks.tensorflow.capture_groups import Flag, Group
from deepfreeze.frameworks.tensorflow.graph_buffers import as_bytes
from deepfreeze.frameworks.tensorflow.hooks import Patch
from deepfreeze.frameworks.tensorflow.late_capture import LateCapture
from deepfreeze.frameworks.tensorflow.variables import tf_variable
from deepfreeze.frameworks.tensorflow.written_variables import READS, written_by
from deepfreeze.plan.capture_plan import CapturePlan, Point, neighbours
from deepfreeze.plan.late_groups import UPDATE
from deepfreeze.state import untracked
from deepfreeze.state.keras_objects import optimizers
from deepfreeze.state.training_state import METRIC, StateTensor, TrainingState


class Range(NamedTuple):
    """The bytes ``start`` to ``stop`` (exclusive) of a flattened tensor of the training state."""

    tensor: StateTensor
    start: int
    stop: int


class TensorFlowCapture:
    """The captures of one model on one rank. From construction to ``close`` the model's train function has the capture ops. Implements
    ``frameworks.state_capture.StateCapture``; ``state``: the captured training state."""

    def __init__(
        self,
        state: TrainingState,
        ranges: Sequence[Range],
        rank: int,
        buffers: Buffers,
        every_step: Callable[[], None] | None,
        optimizer: Any = None,
        plan: CapturePlan = neighbours,
        when: str = UPDATE,
    ) -> None:
        """``ranges``: the bytes that the placement has dealt to this rank. Those of replicated tensors are captured after the optimizer's
        update. At the end of the step rank 0 captures all other tensors, and each other rank its own seeds.
        What the step writes and nobody lists is found when its end is traced for the first time.

        ``every_step`` is called each time that the end of ``train_step`` is traced, to add ops to each step. If it is None, the train
        function gets no ops, and captures are taken between two executions. ``optimizer``: the optimizer whose updates are the steps, if
        it is another one than ``model.optimizer``. ``plan``: makes the groups. It is asked for those of the update now, and for those of
        the step's end when the last variables exist. ``when``: the groups of the update that may be captured late, as in
        ``plan.late_groups``; another one than "update" wants captures in the engine's memory, and in the train function."""
        self.state = state  # replaced in the first execution, in which Keras makes the last variables
        self._buffers = buffers
        self._model = state.model
        self._rank = rank
        self._flag = Flag()
        self._every_step = every_step
        self._applied = False
        self._plan = plan
        self._ranges = [one for one in ranges if one.tensor.spec.role == REPLICATED]
        self._replicated = [tf_variable(tensor.variable) for tensor in state.of_role(REPLICATED)]
        self._captured: set[int] = set()  # id() of each variable in a group
        self._groups = self._make_groups(Point.UPDATE)
        self._updated = len(self._groups)  # the groups after these are captured at the end of the step
        self._complete = False  # whether those exist
        self._update_traced: tuple[Any, int] | None = None
        # Called outside of the graph each time that the end of ``train_step`` has been traced, with the state that is captured.
        self.traced: Callable[[TrainingState], None] = _nothing
        # Whether the graph was asked what the step writes; and the names of variables that it writes, that nobody lists, and that no
        # checkpoint can hold.
        self.asked, self.left_out = False, list[str]()
        self._late = None
        if when != UPDATE and buffers.engine_memory is not None:
            self._late = LateCapture(buffers.engine_memory.area, list(self._groups), when)
        self._patch = None
        if every_step is not None:
            counting = optimizer or self._model.optimizer
            self._patch = Patch(self._model, counting, self._before_step, self._after_update, self._after_step)

    @property
    def engine_memory(self) -> EngineMemory | None:
        """See ``StateCapture``."""
        return self._buffers.engine_memory

    @property
    def groups(self) -> list[Group]:
        """All groups, in the order of their pieces."""
        return self._groups

    @property
    def pieces(self) -> list[Piece]:
        """See ``StateCapture``."""
        self._capture_local()
        return [piece for group in self._groups for piece in group.pieces]

    def captures(self, variable: Any) -> bool:
        """See ``StateCapture``."""
        self._capture_local()
        return id(tf_variable(variable)) in self._captured

    def memory_of(self, variable: Any) -> np.ndarray:
        """See ``StateCapture``."""
        return as_bytes(tf_variable(variable).read_value())

    def fingerprint(self) -> int:
        """One CRC32C over the values of all replicated variables. Ranks with equal values have the same one."""
        values = [as_bytes(variable.read_value()) for variable in self._replicated]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0)), "deepfreeze-fingerprint") as pool:
            # crc32c releases the interpreter's lock, so the threads run at the same time.
            crcs = np.fromiter(pool.map(veloc_bindings.crc32c, values), np.uint32, len(values))
        return veloc_bindings.crc32c(crcs.view(np.uint8))

    def arm(self, step: int) -> None:
        """Sets the step to capture. Ends a rest."""
        if self._patch is not None:
            self._patch.resting = False
        self._flag.arm(step)

    def forget_unfinished(self) -> None:
        """Frees the memory of a capture whose step did not come about, because the optimizer skipped the update (a loss scale that
        overflowed). To be called after the first execution, before the pieces get places in the engine's memory."""
        if self._flag.captured < 0:
            self._buffers.discard()

    def take(self) -> CapturedState:
        """See ``StateCapture``."""
        self._capture_local()
        for group in self._groups:
            group.take()
        return self._collect()

    def collect(self, step: int) -> CapturedState:
        """See ``StateCapture``."""
        if self._patch is None:
            return self.take()
        if tf.executing_eagerly():
            last = self._flag.captured
        else:  # the garbage collector may close a forgotten training while any function is traced
            with tf.init_scope():
                last = self._flag.captured
        if last != step:
            raise EngineError(
                where=f"step {step}",
                expected="a capture of this step in the graph",
                found=f"the last one captured is {last}",
                todo="check that model.train_step applies the optimizer once per step",
            )
        return self._collect()

    @property
    def may_be_late(self) -> bool:
        """See ``StateCapture``."""
        return self._late is not None

    @property
    def held(self) -> bool:
        """See ``StateCapture``."""
        return self._late is not None and self._late.held

    def _collect(self) -> CapturedState:
        captured = self._buffers.collect()
        if self._late is not None:
            self._late.collected()
        return captured

    def check_applied(self) -> None:
        """``UnsupportedError`` if ``train_step`` does not apply the optimizer whose updates are the steps. To be called after the first
        execution."""
        if self._patch is None or self._applied:
            return
        others = ", ".join(name for name in optimizers(self._model) if name != "optimizer")
        raise UnsupportedError(
            where="deepfreeze.Checkpoint",
            expected="a train_step that applies the optimizer whose updates are the steps",
            found=f"one that does not (the model's optimizers: optimizer, {others})" if others else "one that does not",
            todo="name the one that is applied once in each step, optimizer=model.generator_optimizer for example",
        )

    @property
    def in_place(self) -> bool:
        """Whether the train function would still take the captures if Keras traced it anew. A user may have replaced ``train_step``."""
        return self._patch is None or self._patch.in_place

    def rest(self) -> None:
        """Ends captures until the next ``arm``, and frees the memory of the last one. The ops stay in the train function. May be called
        while any function is traced, because the garbage collector may find a forgotten training then."""
        if self._patch is not None:
            self._patch.resting = True
        with tf.init_scope():  # now, not each time that the function is executed
            self._flag.clear()
            self._buffers.discard()

    def close(self) -> None:
        """Takes the capture ops out of the model. Safe to call twice."""
        if self._patch is not None:
            self._patch.close()
        self._buffers.close()

    def _before_step(self) -> None:
        if self._late is not None:
            self._late.step_begins()

    def _after_update(self, step: tf.Tensor) -> None:
        self._applied = True
        if tf.executing_eagerly():
            return  # run_eagerly=True: everything is captured at the end of the step
        hit = self._flag.hit(step)
        for group in self._groups[: self._updated]:
            group.emit(hit)
        graph = tf.compat.v1.get_default_graph()
        self._update_traced = (graph, len(graph.get_operations()))

    def _after_step(self, step: tf.Tensor) -> None:
        assert self._every_step is not None and self._patch is not None
        in_graph = not tf.executing_eagerly()
        if in_graph and not self._complete:
            self._note_written()
        with tf.init_scope():
            self._capture_local()
            if in_graph:
                self.traced(self.state)
            if self._patch.remade:
                self._patch.remade = False
                self.follow_metrics()
        # The optimizer may skip an update, and the count of steps stays. A step that was captured already is not captured again.
        hit = tf.logical_and(self._flag.hit(step), tf.not_equal(self._flag.last(), step))
        again = self._written_later()
        for group in [*again, *self._groups[self._updated :]]:
            group.emit(hit)
        self._flag.mark(step, hit)
        if self._late is not None:
            if not tf.executing_eagerly():
                self._late.stay(again)  # a write to a tensor that is held would copy it first
            self._late.step_ended(hit)
        self._every_step()

    def _note_written(self) -> None:
        """Asks the graph what the step writes that nobody lists, and keeps the answer with the model."""
        graph = tf.compat.v1.get_default_graph()
        # A lookup of Keras 2 has the shape of its value, and values can be read outside of the graph alone.
        with tf.init_scope():
            state = TrainingState.of(self._model)  # the full one, whatever is captured
        written = written_by(graph, state)
        if written is None:
            return
        known = [one for one in untracked.written(self._model) if state.find(one) is not None]
        untracked.note_written(self._model, [*known, *written.variables])
        self.asked, self.left_out = True, written.others

    def _written_later(self) -> list[Group]:
        """The groups with a variable that ``train_step`` uses after the optimizer's update in an op that may write to it (a critic whose
        weights are clipped, a moving average). They are captured once more at the end of the step, over their first capture."""
        groups = self._groups[: self._updated]
        graph = tf.compat.v1.get_default_graph()
        if tf.executing_eagerly() or self._update_traced is None or self._update_traced[0] is not graph:
            return groups
        later = graph.get_operations()[self._update_traced[1] :]
        touched = {tensor.name for op in later if op.type not in READS for tensor in op.inputs}
        return [g for g in groups if any(graph.capture(v.handle).name in touched for v in g.variables)]

    def _capture_local(self) -> None:
        """Adds the groups of the step's end, once. Not before the first step is traced, in which Keras 2 makes the variables of its
        metrics."""
        if self._complete:
            return
        self.state = self.state.grown()
        self._groups += self._make_groups(Point.STEP)
        self._complete = True

    def follow_metrics(self) -> None:
        """To be called when the train function was made anew, and has run or been traced: ``compile`` gives a model other variables for the
        same metrics, and Keras 2 saves those. Metrics that were not there before are not captured."""
        self._capture_local()
        now = {tensor.spec: tensor for tensor in TrainingState.of(self._model, self.state.what).of_kind(METRIC)}
        others = {one: now.get(one.spec, one) for one in self.state.of_kind(METRIC)}
        moved = {id(tf_variable(one.variable)): tf_variable(other.variable) for one, other in others.items()}
        for group in self._groups[self._updated :]:
            group.follow({number: other for number, other in moved.items() if number != id(other)})
        self.state = TrainingState(self._model, self.state.what, [others.get(one, one) for one in self.state.tensors])
        self._captured |= {id(other) for other in moved.values()}

    def _make_groups(self, after: Point) -> list[Group]:
        """The planned groups that are captured from this point of the step on."""
        # In the order of the updates: back-propagation ends with the first layer, and the slots are updated with their weights.
        tensors = [*self.state.of_role(REPLICATED)[::-1], *self.state.of_role(RANK_LOCAL, PER_RANK)]
        own = self.state.whole_on(self._rank)
        mine: dict[int, list[Piece]] = {}
        for tensor, start, stop in [*self._ranges, *(Range(tensor, 0, tensor.spec.nbytes) for tensor in own)]:
            variable = tf_variable(tensor.variable)
            mine.setdefault(id(variable), []).append(Piece(variable, start, stop))
        groups = []
        for planned in self._plan([tensor.spec for tensor in tensors]):
            if planned.after is after:
                variables = [tf_variable(tensors[i].variable) for i in planned.tensors]
                self._captured |= {id(variable) for variable in variables}
                pieces = [piece for variable in variables for piece in mine.get(id(variable), ())]
                groups.append(Group(variables, pieces, self._buffers))
        return groups


def _nothing(state: TrainingState) -> None:
    """Nobody waits for the trace."""
