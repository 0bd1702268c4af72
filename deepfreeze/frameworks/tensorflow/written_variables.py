"""The variables that a traced step writes. The graph tells them: a variable is written if an op that takes its handle may write to it.
Imports TensorFlow."""

from __future__ import annotations

from typing import Any, NamedTuple

import tensorflow as tf

from deepfreeze.format.tensors import DTYPES
from deepfreeze.frameworks.tensorflow.capture_groups import CAPTURE
from deepfreeze.frameworks.tensorflow.own_variables import is_own
from deepfreeze.frameworks.tensorflow.variables import tf_variable
from deepfreeze.state import private_api
from deepfreeze.state.keras_objects import optimizers
from deepfreeze.state.reachable import reachable
from deepfreeze.state.training_state import TrainingState

# The types of ops that take a variable and do not change it.
READS = frozenset({"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"})


class WrittenVariables(NamedTuple):
    """What a step writes and a training state does not have. ``variables``: in the order of the first op that writes to each; ``others``:
    the names of those that are not saved, because no checkpoint can hold their type, or because nobody has the variable's object."""

    variables: list[Any]
    others: list[str]


def written_by(graph: Any, state: TrainingState) -> WrittenVariables | None:
    """What the step that is traced in ``graph`` writes so far, besides the variables of ``state``. Without variables of DeepFreeze,
    Horovod and Keras that count or collect within a step. All ranks trace the same graph, so all get the same. None if the graph does
    not tell."""
    watched = private_api.watched_variables(graph)
    if watched is None:
        return None
    variables = {id(graph.capture(variable.handle)): variable for variable in watched}
    # By the handle: under mixed precision Keras 2 lists another object, which wraps the one that the graph has.
    known = {id(tf_variable(tensor.variable).handle) for tensor in state.tensors}
    known |= {id(variable.handle) for variable in _temporary(state.model)}
    found, others = [], []
    for handle, outside in _written(graph):
        variable = variables.get(id(handle))
        if variable is None:  # an assignment whose result nobody can read, ``assign(value, read_value=False)``
            variable = _by_handle(state.model, outside)
        if variable is None:
            name = private_api.variable_of_handle(outside)
            others += [] if name is None else [name]
        elif id(variable.handle) not in known and not is_own(variable):
            if variable.dtype.name in DTYPES:
                found.append(variable)
            else:
                others.append(variable.name.partition(":")[0])
    return WrittenVariables(found, others)


def _written(graph: Any) -> list[tuple[tf.Tensor, Any]]:
    """(handle in the graph, handle outside of it) of each resource that an op of the graph writes, in the order of the first such ops."""
    at = {op.name: number for number, op in enumerate(graph.get_operations())}
    rows = []
    for outside, handle in graph.captures:
        writers = [op for op in handle.consumers() if writes(op, handle)] if handle.dtype == tf.resource else []
        if writers:
            op = min(writers, key=lambda op: at[op.name])
            # One op may write to several variables, in the order of its inputs.
            place = next(number for number, one in enumerate(op.inputs) if one is handle)
            rows.append((at[op.name], place, handle, outside))
    return [(handle, outside) for _, _, handle, outside in sorted(rows, key=lambda row: row[:2])]


def _by_handle(model: Any, handle: Any) -> Any:
    """The variable with this handle among those that attributes lead to; None if there is none. Rarely called."""
    variables = [tf_variable(variable) for _, variable in reachable(model, "model")]
    return next((one for one in variables if getattr(one, "handle", None) is handle), None)


def unlisted(state: TrainingState) -> list[str]:
    """Of the variables that attributes and containers lead to from the model: the names of those that ``state`` does not have. The step may
    write them, or not."""
    known = {id(tf_variable(tensor.variable)) for tensor in state.tensors}
    known |= {id(variable) for variable in _temporary(state.model)}
    found: dict[int, str] = {}
    for name, variable in reachable(state.model, "model", optimizers(state.model).values()):
        inner = tf_variable(variable)
        if id(inner) not in known and not is_own(inner):
            found.setdefault(id(inner), name)
    return list(found.values())


def writes(op: tf.Operation, handle: tf.Tensor) -> bool:
    """True if the op may write to the variable whose handle it takes."""
    if op.type in READS or op.name.split("/")[-1].startswith(CAPTURE):
        return False
    only_read = private_api.read_only_inputs(op)
    return only_read is None or all(one is not handle for one in only_read)


def _temporary(model: Any) -> list[Any]:
    """Variables that belong to a step or to an epoch of Keras's or Horovod's, and to no state of the training. A rate that follows from the
    count of steps is one of them."""
    found = private_api.fits_own(model)
    for optimizer in optimizers(model).values():
        while optimizer is not None:
            found += private_api.scheduled_rate(optimizer)
            sums = private_api.horovods_accumulator(optimizer)
            found += [variable for _, variable in reachable(sums, "")] if sums is not None else []
            optimizer = getattr(optimizer, "inner_optimizer", None)
    return found
