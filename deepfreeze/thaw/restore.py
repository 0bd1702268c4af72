"""A checkpoint's values into a model, all or nothing.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from deepfreeze.core.errors import OptionError, StructureError
from deepfreeze.core.keras_model import build_optimizer
from deepfreeze.core.structure import Structure
from deepfreeze.core.world import current
from deepfreeze.thaw.locate import CheckpointInfo
from deepfreeze.thaw.read import TensorReader, read, read_private

_LISTED = 10  # differences named in a message


def restore(
    model: Any,
    run: str | os.PathLike[str],
    step: int | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
) -> CheckpointInfo:
    """Restores ``model`` from a checkpoint (the newest for ``step=None``), written by any number of ranks.

    The model must be built; its optimizer is built here if need be. A checkpoint of state "weights" restores the
    weights and leaves the optimizer and seeds alone; so does any checkpoint for a model that was not compiled.
    ``rank`` of ``world_size`` is the caller's (Horovod's by default): ranks that the writing job had get their own
    seeds back, further ranks get seeds derived from rank 0's, different on each.

    Changes nothing unless all is well: StructureError if the model's tensors are not the checkpoint's (by their place
    in the weights file, shape and dtype), CorruptError if any byte is damaged, NotFoundError if there is no such
    checkpoint. For that, all values are in host memory once before the first is assigned: as many bytes as the
    checkpoint has.
    """
    from deepfreeze.core.layout_probe import probe

    world = current()
    rank = world.rank if rank is None else rank
    world_size = max(world.size, rank + 1) if world_size is None else world_size
    if not 0 <= rank < world_size:
        todo = "pass this process's rank and the number of ranks"
        found = f"rank {rank} of {world_size}"
        raise OptionError(where="restore", expected="0 <= rank < world_size", found=found, todo=todo)
    if not getattr(model, "built", True):
        todo = "build it first: call it on one batch, or model.build(input_shape)"
        where = f"model {model.name!r}"
        raise StructureError(where=where, expected="a model with weights", found="none yet", todo=todo)
    with read(run, step) as reader:
        structure = reader.structure
        compiled = getattr(model, "optimizer", None) is not None
        if structure.state == "full":
            build_optimizer(model)
        slots = {slot.path: slot for slot in probe(model, structure.state if compiled else "weights")}
        _check_same(reader, {path: slot.spec for path, slot in slots.items()}, compiled)
        private = _private(reader, rank)
        values = {
            path: private[name] if name in private else reader[name]
            for path, name in ((p.path, p.spec.name) for p in structure.tensors)
            if path in slots
        }
        info = reader.info
    for path, value in values.items():
        slots[path].variable.assign(value)
    return info


def _check_same(reader: TensorReader, specs: dict[str, Any], compiled: bool) -> None:
    """Raises StructureError, naming the first differences, unless the model has exactly the checkpoint's tensors.

    A model that was not ``compiled`` has no optimizer to compare.
    """
    saved = reader.structure.by_path
    if not compiled:
        saved = {path: placed for path, placed in saved.items() if path.split("/")[0] not in ("optimizer", "seeds")}
    differences = []
    for path in sorted(saved.keys() | specs.keys()):
        if path not in specs or path not in saved:
            # Keras makes metric states when it first trains and resets them every epoch: a new model has none yet.
            if not is_metric(path):
                side = "only the checkpoint has" if path in saved else "only the model has"
                spec = saved[path].spec if path in saved else specs[path]
                differences.append(f"{side} {path} ({spec.name}, {spec.dtype}{list(spec.shape)})")
        elif (saved[path].spec.shape, saved[path].spec.dtype) != (specs[path].shape, specs[path].dtype):
            mine, theirs = specs[path], saved[path].spec
            text = f"{path} ({mine.name}) is {mine.dtype}{list(mine.shape)} in the model and"
            differences.append(f"{text} {theirs.dtype}{list(theirs.shape)} in the checkpoint")
    if differences:
        more = f"; and {len(differences) - _LISTED} more" if len(differences) > _LISTED else ""
        raise StructureError(
            where=reader.info.path,
            expected="a checkpoint of this model, with the same optimizer",
            found="; ".join(differences[:_LISTED]) + more,
            todo="nothing was changed: build and compile the model as the job that wrote the checkpoint did",
        )


def is_metric(path: str) -> bool:
    """Whether a dataset holds a metric's state rather than the model's or optimizer's."""
    return path.split("/")[0] == "metrics"


def _private(reader: TensorReader, rank: int) -> dict[str, np.ndarray]:
    structure: Structure = reader.structure
    if not structure.per_rank:
        return {}
    info = reader.info
    if rank < info.world_size:
        return read_private(info.run, info.step, rank)
    return {
        placed.spec.name: fold(reader[placed.spec.name], rank, number)
        for number, placed in enumerate(structure.per_rank)
    }


def fold(value: np.ndarray, rank: int, number: int) -> np.ndarray:
    """A value of ``value``'s shape and dtype for a rank that the writing job did not have: its own, and repeatable.

    ``number`` tells several tensors apart. Integers are drawn evenly from 0 to their maximum; others are returned as
    they are.
    """
    if value.dtype.kind not in "iu":
        return value
    words = np.frombuffer(value.tobytes().ljust(-(-value.nbytes // 4) * 4, b"\0"), "<u4")
    sequence = np.random.SeedSequence(entropy=words.tolist(), spawn_key=(rank, number))
    state = sequence.generate_state(max(1, -(-value.nbytes // 4)), np.uint32).astype("<u4")
    unsigned = np.frombuffer(state.tobytes()[: value.nbytes], value.dtype.newbyteorder("<").str.replace("i", "u"))
    limit = unsigned.dtype.type(np.iinfo(value.dtype).max)
    return (unsigned & limit).astype(value.dtype).reshape(value.shape)
