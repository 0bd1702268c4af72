"""Captures a model's training state in the graph: which variables, which bytes of them, and where the bytes end up.
Imports TensorFlow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

import veloc_bindings
from deepfreeze.core.errors import EngineError, UnsupportedError
from deepfreeze.core.keras_model import (
    is_built,
    optimizer_variables,
    optimizers,
    seeds,
    tf_variable,
    variable_name,
)
from deepfreeze.core.layout_probe import Probe, Slot
from deepfreeze.core.placement import Placement, Shard
from deepfreeze.core.structure import Structure
from deepfreeze.core.supported import require_fixed_world, require_supported
from deepfreeze.core.tensors import PER_RANK, RANK_LOCAL, REPLICATED, TensorSpec
from deepfreeze.freeze import shard_ops
from deepfreeze.freeze.graph_buffers import as_bytes
from deepfreeze.freeze.optimizer_patch import Patch
from deepfreeze.freeze.pieces import Buffers, Captured, Piece
from deepfreeze.freeze.shard_ops import Flag, Group

_CALLBACK = "deepfreeze.Checkpoint"


@dataclass(frozen=True)
class Layout:
    """Where captured bytes belong: one row per region, sorted by file offset.

    ``group``: number of the group, ``place``: byte offset in the group, where its pieces lie one after the other,
    ``nbytes``, ``file_offset``: int64 arrays of one element per region. ``private``: (group, place, nbytes) of each per-rank
    tensor, in the structure's order.
    """

    group: np.ndarray
    place: np.ndarray
    nbytes: np.ndarray
    file_offset: np.ndarray
    private: tuple[tuple[int, int, int], ...]


class Capture:
    """The capture ops of one model on one rank, installed from construction to ``close``; they write to ``buffers``."""

    def __init__(
        self,
        model: Any,
        state: str,
        rank: int,
        world: int,
        place: Placement,
        buffers: Buffers,
        every_step: Callable[[], None] | None,
        optimizer: Any = None,
    ) -> None:
        """``every_step`` is called as the end of ``train_step`` is traced; None: nothing goes into a graph, and captures are
        taken between two executions. ``optimizer``: the one whose updates are the steps, if it is not the model's."""
        self.buffers = buffers
        self._model = model
        self._rank = rank
        self._state = state
        self._flag = Flag()
        self._every_step = every_step
        self._applied = False
        self._replicated = _replicated(model, state)
        known = {id(v) for v in self._replicated}
        local = [v for v in model.non_trainable_variables if id(v) not in known]
        specs = [_spec(v, REPLICATED) for v in self._replicated] + [_spec(v, RANK_LOCAL) for v in local]
        self.order = [id(tf_variable(v)) for v in [*self._replicated, *local]]  # of the specs that are placed
        shards = [s for s in place(specs, world)[rank] if s.tensor < len(self._replicated)]
        # Back-propagation ends with the first layer; optimizer slots follow their weights.
        in_write_order = [tf_variable(v) for v in reversed(self._replicated)]
        self._groups = shard_ops.group(in_write_order, [self._piece(shard) for shard in shards], buffers)
        self._updated = len(self._groups)  # the groups after these are captured at the end of the step
        self._update_traced: tuple[Any, int] | None = None
        self._patch = None
        if every_step is not None:
            self._patch = Patch(model, optimizer or model.optimizer, self._after_update, self._after_step)

    @property
    def groups(self) -> list[Group]:
        """All groups, in the order of their numbers."""
        return self._groups

    def fingerprint(self) -> int:
        """A checksum of the replicated variables' values, read where they lie: the same on ranks that are alike."""
        crc = 0
        for variable in self._replicated:
            crc = veloc_bindings.crc32c(as_bytes(tf_variable(variable).read_value()), crc)
        return crc

    def arm(self, step: int) -> None:
        """Sets the step to capture."""
        self._flag.arm(step)

    def forget_unfinished(self) -> None:
        """After the first execution, before the buffers get other places: forgets what was captured for a step that did not come
        about, because its update was skipped."""
        if self._flag.captured < 0:
            self.buffers.discard()

    def take(self) -> Captured:
        """Captures the state as it is now, between two executions."""
        self._capture_local()
        for group in self._groups:
            group.take()
        return self.buffers.collect()

    def collect(self, step: int) -> Captured:
        """What the graph captured at ``step``. Raises ``EngineError`` if another step was captured last, ``EngineFault`` if
        there was no memory."""
        if self._patch is None:
            return self.take()
        if self._flag.captured != step:
            raise EngineError(
                where=f"step {step}",
                expected="a capture of this step in the graph",
                found=f"the last one captured is {self._flag.captured}",
                todo="check that model.train_step applies the optimizer once per step",
            )
        return self.buffers.collect()

    def layout(self, probe: Probe, structure: Structure) -> Layout:
        """Joins what is captured with where it belongs. Raises ``UnsupportedError`` if they don't match."""
        self._capture_local()
        offsets = {placed.path: placed.offset for placed in structure.tensors}
        # Keras keeps some variables in two datasets (tied weights, what an optimizer shares with one it wraps).
        slots: dict[int, list[Slot]] = {}
        for slot in probe.slots:
            slots.setdefault(id(tf_variable(slot.variable)), []).append(slot)
        captured = {id(tf_variable(variable)) for variable in self._replicated}
        rows: list[tuple[int, int, int, int]] = []
        private: dict[str, tuple[int, int, int]] = {}
        for g, group in enumerate(self._groups):
            place = 0
            for piece in group.pieces:
                for slot in slots.get(id(piece.variable), ()):
                    if slot.spec.role == PER_RANK:
                        private[slot.path] = (g, place, piece.nbytes)
                    elif slot.spec.role == REPLICATED or self._rank == 0:
                        rows.append((g, place, piece.nbytes, offsets[slot.path] + piece.start))
                place += piece.nbytes
        captured |= {id(piece.variable) for group in self._groups for piece in group.pieces}
        for slot in probe.slots:
            needed = slot.spec.role != RANK_LOCAL or self._rank == 0
            if needed and slot.spec.nbytes and id(tf_variable(slot.variable)) not in captured:
                raise UnsupportedError(
                    where=f"variable {slot.spec.name}, saved as {slot.path}",
                    expected="a variable that the model, or one of its optimizers, had when training began",
                    found="one that came into being in the first step",
                    todo="build it before fit, an optimizer by its build(variables)",
                )
        table = np.array(sorted(rows, key=lambda row: row[3]), np.int64).reshape(-1, 4)
        order = [placed.path for placed in structure.per_rank]
        return Layout(*table.T, private=tuple(private[path] for path in order if path in private))  # type: ignore[misc]

    def close(self) -> None:
        """Takes the capture out of the model again."""
        if self._patch is not None:
            self._patch.close()
        self.buffers.close()

    def _piece(self, shard: Shard) -> Piece:
        return Piece(shard.tensor, tf_variable(self._replicated[shard.tensor]), shard.start, shard.stop)

    def check_applied(self) -> None:
        """After the first execution: ``UnsupportedError`` if the optimizer that counts the steps had no part in it."""
        if self._patch is None or self._applied:
            return
        others = ", ".join(name for name in optimizers(self._model) if name != "optimizer")
        raise _unsupported(
            "a train_step that applies the optimizer whose updates are the steps",
            f"one that does not (the model's optimizers: optimizer, {others})" if others else "one that does not",
            "name the one that is applied once in each step, optimizer=model.generator_optimizer for example",
        )

    def _after_update(self, step: tf.Tensor) -> None:
        self._applied = True
        if tf.executing_eagerly():
            return  # all of it is captured at the end of the step
        hit = self._flag.hit(step)
        for group in self._groups[: self._updated]:
            group.emit(hit)
        graph = tf.compat.v1.get_default_graph()
        self._update_traced = (graph, len(graph.get_operations()))

    def _after_step(self, step: tf.Tensor) -> None:
        assert self._every_step is not None
        with tf.init_scope():
            self._capture_local()
        # A skipped update leaves the step as it is: what was captured once is not captured again.
        hit = tf.logical_and(self._flag.hit(step), tf.not_equal(self._flag.last(), step))
        for group in [*self._written_later(), *self._groups[self._updated :]]:
            group.emit(hit)
        self._flag.mark(step, hit)
        self._every_step()

    def _written_later(self) -> list[Group]:
        """Groups with a variable that ``train_step`` writes to after the optimizer's update (a clipped critic, a moving
        average): captured once more, at the end, which overwrites the first capture."""
        groups = self._groups[: self._updated]
        graph = tf.compat.v1.get_default_graph()
        if tf.executing_eagerly() or self._update_traced is None or self._update_traced[0] is not graph:
            return groups
        later = graph.get_operations()[self._update_traced[1] :]
        touched = {tensor.name for op in later if op.type not in _READS for tensor in op.inputs}
        return [g for g in groups if any(graph.capture(v.handle).name in touched for v in g.variables)]

    def _capture_local(self) -> None:
        """Keras 2 makes its metrics' variables in the first step, so only now are all of them known."""
        if len(self._groups) > self._updated:
            return
        known = {id(v) for v in self._replicated}
        metrics = [v for metric in getattr(self._model, "metrics", ()) for v in metric.variables]
        random = {id(v): v for _, v in seeds(self._model)}
        local = {id(v): v for v in [*self._model.variables, *metrics, *random.values()] if id(v) not in known}
        own = [v for v in local.values() if self._rank == 0 or id(v) in random]
        pieces = [Piece(-1, tf_variable(v), 0, _spec(v, RANK_LOCAL).nbytes) for v in own]
        self._groups.append(Group([tf_variable(v) for v in local.values()], pieces, self.buffers))


def refuse(model: Any, optimizer: Any = None, averages_in_graph: bool = False, where: str = _CALLBACK) -> None:
    """Raises ``UnsupportedError`` for what can't be captured, with the reason. ``averages_in_graph``: the train function has
    Horovod's ops in it. ``where``: what the user has called."""
    require_supported(where, model, optimizer)
    require_fixed_world(where)
    refused = partial(_unsupported, where=where)
    known = optimizers(model)
    optimizer = optimizer or known.get("optimizer")
    if optimizer is None:
        raise refused("a compiled model", "one without an optimizer", "call model.compile(optimizer, ...) first")
    if not any(optimizer is one for one in known.values()):
        found = f"another {type(optimizer).__name__} (the model has {', '.join(known) or 'none'})"
        raise refused("one of the model's own optimizers", found, "make it an attribute of the model")
    if not hasattr(optimizer, "build"):
        raise refused("an optimizer that Keras saves", f"the legacy {type(optimizer).__name__}", "use the current one")
    inner = getattr(optimizer, "inner_optimizer", None)
    if getattr(inner, "averages_gradients", False):
        found = "a DistributedOptimizer inside a LossScaleOptimizer, which compile puts around it under mixed_float16"
        todo = (
            "wrap the other way round: deepfreeze.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer))"
        )
        raise refused("gradients averaged on every rank in every step", found, todo)
    for name, one in known.items():
        if name != "optimizer" and not is_built(one):
            raise refused(
                "optimizers that are built", f"{name}, which is not", f"call model.{name}.build(variables) before fit"
            )
    if not getattr(model, "built", True):
        raise refused("a built model", "one without variables", "call model.build(input_shape) before fit")
    if tf.distribute.has_strategy() or type(getattr(model, "distribute_strategy", None)).__name__ not in _NO_STRATEGY:
        raise refused("no tf.distribute strategy", "one", "run one process per replica, with Horovod")
    if averages_in_graph and is_compiled_by_xla(model):
        found = (
            'one compiled by XLA (jit_compile=True, or what Keras makes of "auto", its default, where it sees a GPU)'
        )
        todo = "say jit_compile=False in model.compile"
        raise refused("a train function that Horovod's ops can be in", found, todo)
    built = [one for one in known.values() if is_built(one)]
    for variable in [*model.variables, *(v for one in built for v in optimizer_variables(one))]:
        device = str(getattr(tf_variable(variable), "device", ""))
        if device and "CPU" not in device:
            found = f"{variable_name(variable)} on {device.rpartition('device:')[2]}"
            raise refused("variables in host memory", found, "train on the CPU: CUDA_VISIBLE_DEVICES=-1 hides the GPUs")


def is_compiled_by_xla(model: Any) -> bool:
    """Whether ``fit`` compiles its train function with XLA, which compiles none of the ops that capture. What ``compile`` was
    told is not asked: Keras 3 has made True or False of "auto" by then, and Keras 2 takes it, as anything else, for True."""
    # Keras 3 would decide for a model that is in no fit, too.
    return bool(getattr(model, "compiled", True) and getattr(model, "jit_compile", False))


# Ops on a variable that leave it as it is.
_READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"})
_NO_STRATEGY = frozenset({"NoneType", "_DefaultDistributionStrategy"})


def _unsupported(expected: str, found: str, todo: str, where: str = _CALLBACK) -> UnsupportedError:
    return UnsupportedError(where=where, expected=expected, found=found, todo=todo)


def _replicated(model: Any, state: str) -> Sequence[Any]:
    """Trainable weights, then the optimizers' variables."""
    variables = list(model.trainable_variables)
    if state == "full":
        variables += [v for optimizer in optimizers(model).values() for v in optimizer_variables(optimizer)]
    return list({id(v): v for v in variables}.values())


def _spec(variable: Any, role: str) -> TensorSpec:
    tensor = tf_variable(variable)
    return TensorSpec(variable_name(variable), tensor.dtype.name, tuple(int(n) for n in tensor.shape), role)
