"""Refuses models, optimizers and jobs that DeepFreeze can't handle, before anything else is done with them. Without this check they would
fail later, in a place that does not show the cause.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import os
from typing import Any

from deepfreeze.errors import UnsupportedError
from deepfreeze.frameworks import table
from deepfreeze.state.keras_objects import optimizers


def require_supported(where: str, model: Any = None, optimizer: Any = None) -> None:
    """``UnsupportedError`` for a model or an optimizer of a Keras whose backend is not in ``frameworks.table``, and for Horovod's own
    optimizer on Keras 3. ``where``: the function or class that the user has called, for the message."""
    for thing in (model, optimizer):
        table.require(thing, where)
    require_working_optimizers(where, model, optimizer)


def require_working_optimizers(where: str, model: Any = None, optimizer: Any = None) -> None:
    """``UnsupportedError`` for Horovod's own optimizer on Keras 3. ``transfer`` needs no more than this check: it serves any backend."""
    for candidate in [optimizer, *(optimizers(model).values() if model is not None else ())]:
        _refuse_horovods(where, candidate)


def require_fixed_world(where: str) -> None:
    """``UnsupportedError`` in an elastic Horovod job: the shards of a training's checkpoints are planned for a fixed number of ranks."""
    if os.environ.get("HOROVOD_ELASTIC", "0") != "0":  # as the launcher sets it for every rank
        raise UnsupportedError(
            where=where,
            expected="ranks that stay the same until training ends",
            found="an elastic Horovod job (horovodrun --min-np, hvd.elastic), whose ranks change inside fit",
            todo="start it with a fixed number (horovodrun -np N), and again when nodes come or go: any number of ranks resumes",
        )


def _refuse_horovods(where: str, optimizer: Any) -> None:
    while optimizer is not None:
        if type(optimizer).__module__.split(".")[0] == "horovod" and hasattr(optimizer, "apply"):
            raise UnsupportedError(
                where=where,
                expected="an optimizer that works on Keras 3",
                found="Horovod's own DistributedOptimizer, which needs Keras 2",
                todo="use deepfreeze.DistributedOptimizer in its place, or tf_keras with TF_USE_LEGACY_KERAS=1 in the environment",
            )
        optimizer = getattr(optimizer, "inner_optimizer", None)
