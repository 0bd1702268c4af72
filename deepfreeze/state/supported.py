"""Refuses models, optimizers and jobs that DeepFreeze can't handle, before anything else is done with them. Without this check they would
fail later, in a place that does not show the cause.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from deepfreeze.errors import UnsupportedError
from deepfreeze.state.keras_objects import keras_of, optimizers


def require_supported(where: str, model: Any = None, optimizer: Any = None) -> None:
    """``UnsupportedError`` for a model or an optimizer of another Keras backend than TensorFlow, and for Horovod's own optimizer on
    Keras 3. ``where``: the function or class that the user has called, for the message."""
    for thing in (model, optimizer):
        _require_tensorflow(where, thing)
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


def _require_tensorflow(where: str, thing: Any) -> None:
    # Keras 2 has TensorFlow alone; with Keras 3 all models of a process have one backend.
    backend = sys.modules["keras"].backend.backend() if keras_of(thing) == "keras" else "tensorflow"
    if backend != "tensorflow":
        raise UnsupportedError(
            where=where,
            expected="Keras on TensorFlow",
            found=f"Keras on {backend}",
            todo="set KERAS_BACKEND=tensorflow before Keras is imported; deepfreeze.read, transfer and export serve any backend",
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
