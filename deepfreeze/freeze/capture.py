"""Captures a model's training state in the graph: which variables, which bytes of them, and where the bytes end up.
Imports TensorFlow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from deepfreeze.core.errors import EngineError, UnsupportedError
from deepfreeze.core.keras_model import is_seed, optimizer_variables, tf_variable, variable_name
from deepfreeze.core.layout_probe import Probe
from deepfreeze.core.placement import Placement, Shard
from deepfreeze.core.structure import Structure
from deepfreeze.core.tensors import PER_RANK, RANK_LOCAL, REPLICATED, TensorSpec
from deepfreeze.freeze import optimizer_patch, shard_ops
from deepfreeze.freeze.shard_ops import Flag, Group, Piece


@dataclass(frozen=True)
class Layout:
    """Where captured bytes belong: one row per region, sorted by file offset.

    ``group``: index into the groups, ``place``: byte offset in that group's buffer, ``nbytes``, ``file_offset``: int64 arrays
    of one element per region. ``private``: (group, place, nbytes) of each per-rank tensor, in the structure's order.
    """

    group: np.ndarray
    place: np.ndarray
    nbytes: np.ndarray
    file_offset: np.ndarray
    private: tuple[tuple[int, int, int], ...]


class Capture:
    """The capture ops of one model on one rank, installed from construction to ``close``."""

    def __init__(self, model: Any, state: str, rank: int, world: int, place: Placement) -> None:
        refuse(model)
        self._model = model
        self._rank = rank
        self._state = state
        self._flag = Flag()
        self._replicated = _replicated(model, state)
        known = {id(v) for v in self._replicated}
        local = [v for v in model.non_trainable_variables if id(v) not in known]
        specs = [_spec(v, REPLICATED) for v in self._replicated] + [_spec(v, RANK_LOCAL) for v in local]
        shards = [s for s in place(specs, world)[rank] if s.tensor < len(self._replicated)]
        self._groups = shard_ops.group(
            [self._piece(shard) for shard in sorted(shards, key=self._write_order)], alias=world == 1
        )
        self._updated = len(self._groups)  # the groups after these are captured at the end of the step
        self._local: list[Any] = []
        self._open = contextlib.ExitStack()
        self._open.enter_context(optimizer_patch.patched(model, self._after_update, self._after_step))

    @property
    def groups(self) -> list[Group]:
        """All groups, in the order of ``collect``."""
        return self._groups

    def arm(self, step: int) -> None:
        """Sets the step to capture."""
        self._flag.arm(step)

    def take(self) -> None:
        """Captures the state as it is now, between two executions."""
        for group in self._groups:
            group.take()

    def collect(self, step: int | None) -> list[tf.Tensor]:
        """The captured buffers, one per group. They are TensorFlow's own and stay as they are while referenced.

        ``step``: the step they must be of, None after ``take``. Raises ``EngineError`` if another one was captured.
        """
        if step is not None and self._flag.captured != step:
            raise EngineError(
                where=f"step {step}",
                expected="a capture of this step in the graph",
                found=f"the last one captured is {self._flag.captured}",
                todo="check that model.train_step applies the optimizer once per step",
            )
        return [group.read() for group in self._groups]

    def layout(self, probe: Probe, structure: Structure) -> Layout:
        """Joins what is captured with where it belongs. Raises ``UnsupportedError`` if they don't match."""
        offsets = {placed.path: placed.offset for placed in structure.tensors}
        slots = {id(tf_variable(slot.variable)): slot for slot in probe.slots}
        captured = {id(tf_variable(variable)) for variable in self._replicated}
        rows: list[tuple[int, int, int, int]] = []
        private: dict[str, tuple[int, int, int]] = {}
        for g, group in enumerate(self._groups):
            place = 0
            for piece in group.pieces:
                slot = slots.get(id(piece.variable))
                if slot is None:
                    if id(piece.variable) in captured:
                        raise _unmatched(piece.variable.name, "in the model's weights file", "no such dataset")
                elif slot.spec.role == PER_RANK:
                    private[slot.path] = (g, place, piece.nbytes)
                elif slot.spec.role == REPLICATED or self._rank == 0:
                    rows.append((g, place, piece.nbytes, offsets[slot.path] + piece.start))
                place += piece.nbytes
        captured |= {id(piece.variable) for group in self._groups for piece in group.pieces}
        for slot in probe.slots:
            needed = slot.spec.role != RANK_LOCAL or self._rank == 0
            if needed and slot.spec.nbytes and id(tf_variable(slot.variable)) not in captured:
                raise _unmatched(slot.spec.name, "among the variables of the model and its optimizer", "another one")
        table = np.array(sorted(rows, key=lambda row: row[3]), np.int64).reshape(-1, 4)
        order = [placed.path for placed in structure.per_rank]
        return Layout(*table.T, private=tuple(private[path] for path in order if path in private))  # type: ignore[misc]

    def close(self) -> None:
        """Takes the capture out of the model again."""
        self._open.close()

    def _piece(self, shard: Shard) -> Piece:
        return Piece(shard.tensor, tf_variable(self._replicated[shard.tensor]), shard.start, shard.stop)

    def _write_order(self, shard: Shard) -> int:
        # Back-propagation ends with the first layer; optimizer slots follow their weights.
        return -shard.tensor

    def _after_update(self, step: tf.Tensor) -> None:
        hit = self._flag.hit(step)
        for group in self._groups[: self._updated]:
            group.emit(hit)

    def _after_step(self, step: tf.Tensor) -> None:
        with tf.init_scope():
            self._capture_local()
        hit = self._flag.hit(step)
        for group in self._groups[self._updated :]:
            group.emit(hit)
        self._flag.mark(step, hit)

    def _capture_local(self) -> None:
        """Keras 2 makes its metrics' variables in the first step, so only now are all of them known."""
        if len(self._groups) > self._updated:
            return
        known = {id(v) for v in self._replicated}
        metrics = [v for metric in getattr(self._model, "metrics", ()) for v in metric.variables]
        local = {id(v): v for v in [*self._model.variables, *metrics] if id(v) not in known}
        variables = [v for v in local.values() if self._rank == 0 or is_seed(v)]
        pieces = [Piece(-1, tf_variable(v), 0, _spec(v, RANK_LOCAL).nbytes) for v in variables]
        if any(piece.nbytes for piece in pieces):
            self._groups.append(Group([piece for piece in pieces if piece.nbytes], copy=True))


def refuse(model: Any) -> None:
    """Raises ``UnsupportedError`` for what can't be captured, with the reason."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        raise _unsupported("a compiled model", "one without an optimizer", "call model.compile(optimizer, ...) first")
    if not model.built:
        raise _unsupported("a built model", "one without variables", "call model.build(input_shape) before fit")
    if tf.distribute.has_strategy() or type(getattr(model, "distribute_strategy", None)).__name__ not in _NO_STRATEGY:
        raise _unsupported("no tf.distribute strategy", "one", "run one process per replica, with Horovod")
    if getattr(optimizer, "gradient_accumulation_steps", None):
        raise _unsupported(
            "an update in every step", "gradient accumulation", "train without gradient_accumulation_steps"
        )
    if getattr(model, "jit_compile", False) is True or getattr(model, "_jit_compile", False) is True:
        raise _unsupported(
            "a train function without XLA", "jit_compile=True", "compile the model with jit_compile=False"
        )
    on_device = [v for v in model.variables if "GPU" in str(getattr(tf_variable(v), "device", ""))]
    if on_device:
        raise _unsupported("variables in host memory", f"{variable_name(on_device[0])} on a GPU", "train on the CPU")


_NO_STRATEGY = frozenset({"NoneType", "_DefaultDistributionStrategy"})


def _unsupported(expected: str, found: str, todo: str) -> UnsupportedError:
    return UnsupportedError(where="deepfreeze.Checkpoint", expected=expected, found=found, todo=todo)


def _unmatched(name: str, expected: str, found: str) -> UnsupportedError:
    return UnsupportedError(
        where=f"variable {name}",
        expected=f"to find it {expected}",
        found=found,
        todo="let the layer save its variables as they are",
    )


def _replicated(model: Any, state: str) -> Sequence[Any]:
    """Trainable weights, then the optimizer's variables."""
    variables = list(model.trainable_variables)
    if state == "full":
        variables += optimizer_variables(model)
    return list({id(v): v for v in variables}.values())


def _spec(variable: Any, role: str) -> TensorSpec:
    tensor = tf_variable(variable)
    return TensorSpec(variable_name(variable), tensor.dtype.name, tuple(int(n) for n in tensor.shape), role)
