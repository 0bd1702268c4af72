"""Refuses, with the reason, models, optimizers and settings whose training TensorFlow can't capture. Imports TensorFlow."""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from deepfreeze.errors import UnsupportedError
from deepfreeze.frameworks.tensorflow.first_trace import lines_to_build
from deepfreeze.frameworks.tensorflow.variables import tf_variable
from deepfreeze.state.keras_objects import optimizers
from deepfreeze.state.supported import require_fixed_world, require_supported
from deepfreeze.state.training_state import TrainingState
from deepfreeze.state.unbuilt import placeholders


def refuse(
    model: Any,
    optimizer: Any = None,
    averages_in_graph: bool = False,
    where: str = "deepfreeze.Checkpoint",
    built: bool = True,
    loop: bool = False,
) -> None:
    """``UnsupportedError``, with the reason, if the training of ``model`` can't be captured. ``optimizer``: the optimizer whose updates are
    the steps, None for the one given to ``compile``; ``averages_in_graph``: Horovod's ops are part of the train function; ``where``: the
    name of what the user has called, for the message; ``built``: False for a model that its first trace will build;
    ``loop``: the training is a loop written by hand, which nobody can trace."""
    require_supported(where, model, optimizer)
    require_fixed_world(where)
    refused = partial(_unsupported, where=where)
    known = optimizers(model)
    optimizer = optimizer or known.get("optimizer")
    if optimizer is None:
        raise refused("a compiled model", "one without an optimizer", "call model.compile(optimizer, ...) first")
    if not any(optimizer is one for one in known.values()):
        found = f"another {type(optimizer).__name__} (the model has {', '.join(known) or 'none'})"
        raise refused(
            "one of the model's own optimizers", found, "make it an attribute of the model, or an item of one"
        )
    if not hasattr(optimizer, "build"):
        raise refused("an optimizer that Keras saves", f"the legacy {type(optimizer).__name__}", "use the current one")
    inner = getattr(optimizer, "inner_optimizer", None)
    if getattr(inner, "averages_gradients", False):
        found = "a DistributedOptimizer inside a LossScaleOptimizer, which compile puts around it under mixed_float16"
        todo = (
            "wrap the other way round: deepfreeze.DistributedOptimizer(keras.optimizers.LossScaleOptimizer(optimizer))"
        )
        raise refused("gradients averaged on every rank in every step", found, todo)
    # Keras 2 gives a model the strategy in whose scope it was made. Outside of all scopes TensorFlow has a default one.
    strategy = getattr(model, "distribute_strategy", None)
    made_in_scope = strategy is not None and type(strategy) is not type(tf.distribute.get_strategy())
    if tf.distribute.has_strategy() or made_in_scope:
        raise refused("no tf.distribute strategy", "one", "run one process per replica, with Horovod")
    if averages_in_graph and is_compiled_by_xla(model):
        found = (
            'one compiled by XLA (jit_compile=True, or what Keras makes of "auto", its default, where it sees a GPU)'
        )
        todo = "say jit_compile=False in model.compile"
        raise refused("a train function that Horovod's ops can be in", found, todo)
    lines = lines_to_build(model, everywhere=loop) if built else []
    if lines:
        todo = f"call {' and '.join(lines)} first{placeholders(lines)}"
        raise refused("a built model", "one without all of its variables", todo)


def refuse_devices(state: TrainingState, where: str) -> None:
    """``UnsupportedError`` if a variable of the state is not in host memory; ``where``: as for ``refuse``."""
    for tensor in state.tensors:
        device = str(getattr(tf_variable(tensor.variable), "device", ""))
        if device and "CPU" not in device:
            found = f"{tensor.spec.name} on {device.rpartition('device:')[2]}"
            todo = "train on the CPU: CUDA_VISIBLE_DEVICES=-1 hides the GPUs"
            raise _unsupported("variables in host memory", found, todo, where)


def is_compiled_by_xla(model: Any) -> bool:
    """Whether ``fit`` compiles its train function with XLA, which can't compile the ops that capture. The model's attribute
    ``jit_compile`` is read, not the argument of ``compile``: Keras 3 has turned "auto" into True or False there, and Keras 2 takes any
    text for True."""
    # A model that is not compiled is not asked: in Keras 3 reading the attribute would make it decide.
    return bool(getattr(model, "compiled", True) and getattr(model, "jit_compile", False))


def _unsupported(expected: str, found: str, todo: str, where: str) -> UnsupportedError:
    return UnsupportedError(where=where, expected=expected, found=found, todo=todo)
