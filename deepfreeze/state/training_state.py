"""The training state: every variable of a model and its optimizers that a checkpoint may hold.

``TrainingState`` alone enumerates a model's variables: capture, placement, the model file, the comparison of the ranks, broadcast,
transfer, lineage and restore all ask it. Uses Keras objects of any backend, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from deepfreeze.errors import UnsupportedError
from deepfreeze.format.tensors import DTYPES, PER_RANK, RANK_LOCAL, REPLICATED, TensorSpec
from deepfreeze.frameworks.table import variables_for
from deepfreeze.state import private_api, untracked
from deepfreeze.state.keras_objects import (
    is_seed,
    listed_variables,
    optimizer_variables,
    optimizers,
    seeds,
    variable_name,
)

# The kinds of a variable.
WEIGHT = "weight"  # trained by gradients
STATISTIC = "statistic"  # any other weight of the model: BatchNorm's moving averages, frozen layers
METRIC = "metric"  # a metric's sums
SLOT = "slot"  # an optimizer's tensor beside a weight: momentum, variance
COUNT = "count"  # an optimizer's scalar: iterations, learning rate, loss scale
SEED = "seed"  # the state of a random layer's generator
WRITTEN = (
    "written"  # what the step writes and neither the model nor an optimizer lists: an average of weights, a counter
)
GENERATOR = "generator"  # of these the state of a random generator

ROLES = {
    WEIGHT: REPLICATED,
    SLOT: REPLICATED,
    COUNT: REPLICATED,
    STATISTIC: RANK_LOCAL,
    METRIC: RANK_LOCAL,
    SEED: PER_RANK,
    WRITTEN: RANK_LOCAL,
    GENERATOR: PER_RANK,
}
# Kinds of variables that the first step makes, or shows. One rank may know of them before the others do; seeds each rank saves itself.
_LATE = (METRIC, SEED, WRITTEN, GENERATOR)


@dataclass(frozen=True, eq=False)
class StateTensor:
    """One variable. ``variable``: the model's own object (of Keras 3, or a ``tf.Variable``); ``spec``: name (unique in the state),
    dtype, shape and role; ``kind``: a key of ``ROLES``; ``optimizer``: the model's attribute that holds the variable's optimizer
    (``"optimizer"`` for the compiled one), "" for a variable of the model."""

    variable: Any
    spec: TensorSpec
    kind: str
    optimizer: str = ""


class TrainingState:
    """The ``tensors`` of ``model``, one for each variable. First come the replicated ones (trained weights, then each optimizer's
    variables), then the model's other weights, its metrics, its seeds, and what the step writes besides (``state/untracked``). The order
    is the same on every rank and in every start of the same program. ``what``: "full", or "weights" for a state without the
    optimizers' variables. ``key``: tells the variables apart (``frameworks.variables.Variables``)."""

    def __init__(self, model: Any, what: str, tensors: Iterable[StateTensor]) -> None:
        """``of`` makes the state of a model; the constructor takes its tensors as they are given."""
        self.model, self.what = model, what
        self.key = variables_for(model).key
        self.tensors = tuple(tensors)

    @classmethod
    def of(cls, model: Any, what: str = "full", before: TrainingState | None = None) -> TrainingState:
        """The state of a built Keras model or a ``tf.Module``. ``what``: the value of the option ``state``, "full" or "weights";
        ``before``: an earlier state of the model, whose descriptions of variables are used again. ``UnsupportedError`` for a variable
        of a dtype that no checkpoint can hold."""
        return cls(model, what, _tensors(model, what, (), () if before is None else before.tensors))

    def grown(self) -> TrainingState:
        """A state with the same tensors in the same order, followed by those of variables that the model has made since this state was
        taken. Keras 2 makes the variables of its metrics in the first step."""
        return TrainingState(self.model, self.what, [*self.tensors, *_tensors(self.model, self.what, self.tensors)])

    def only(self, what: str) -> TrainingState:
        """The same state without the optimizers' variables if ``what`` is "weights"."""
        if what == self.what:
            return self
        return TrainingState(self.model, what, [tensor for tensor in self.tensors if not tensor.optimizer])

    def same_as(self, other: TrainingState) -> bool:
        """Whether both have the same variables, each of the same kind. Toggling ``layer.trainable``, for example, changes kinds."""
        return {(id(one.variable), one.kind) for one in self.tensors} == {
            (id(one.variable), one.kind) for one in other.tensors
        }

    def of_kind(self, *kinds: str) -> list[StateTensor]:
        """The tensors of these kinds, in the state's order."""
        return [tensor for tensor in self.tensors if tensor.kind in kinds]

    def of_role(self, *roles: str) -> list[StateTensor]:
        """The tensors of these roles, in the state's order."""
        return [tensor for tensor in self.tensors if tensor.spec.role in roles]

    def whole_on(self, rank: int) -> list[StateTensor]:
        """The tensors that a rank captures whole, whatever a placement deals out: the other weights, metrics and what the step writes
        besides are rank 0's, and each rank has its own seeds. In the state's order."""
        return [one for one in self.of_role(RANK_LOCAL, PER_RANK) if one.spec.role == PER_RANK or rank == 0]

    def placed(self) -> list[StateTensor]:
        """The tensors that a placement deals out to the ranks before training: those of which all ranks know then."""
        return [tensor for tensor in self.tensors if tensor.kind not in _LATE]

    def unlisted(self) -> list[StateTensor]:
        """The tensors of variables that the model does not list: those of ``state/untracked``."""
        found = {id(variable) for variable in [*untracked.trained(self.model), *untracked.written(self.model)]}
        return [tensor for tensor in self.tensors if id(tensor.variable) in found]

    def find(self, variable: Any) -> StateTensor | None:
        """The tensor of a variable, or of its key. None if the state has no such variable."""
        return self._of.get(id(variable))

    @cached_property
    def _of(self) -> dict[int, StateTensor]:
        """The tensors by the ``id()`` of the model's variable, and of its key."""
        own = {id(tensor.variable): tensor for tensor in self.tensors}
        return own | {id(self.key(tensor.variable)): tensor for tensor in self.tensors}

    def description(self) -> list[tuple[str, str]]:
        """The model's weights and its optimizers as rows for ``ranks.same_model``: ("float32 of shape (3, 4)", "dense/kernel") for a
        variable, ("optimizer Adam", "") for an optimizer. Without seeds, and without metrics, whose variables one rank may have made
        before the others have."""
        rows = [_row(tensor) for tensor in self.tensors if tensor.kind in (WEIGHT, STATISTIC)]
        for name, optimizer in optimizers(self.model).items():
            rows.append((f"{name} {type(optimizer).__name__}", ""))
            rows += [_row(tensor) for tensor in self.tensors if tensor.optimizer == name]
        return rows


def _row(tensor: StateTensor) -> tuple[str, str]:
    return f"{tensor.spec.dtype} of shape {tensor.spec.shape}", variable_name(tensor.variable)


def _tensors(
    model: Any, what: str, known: Iterable[StateTensor], before: Iterable[StateTensor] = ()
) -> Iterator[StateTensor]:
    """The tensors of a model without those that are ``known`` already. ``before``: tensors of the model that may serve again."""
    key = variables_for(model).key
    seen = {id(tensor.variable) for tensor in known} | {id(key(tensor.variable)) for tensor in known}
    names = {tensor.spec.name for tensor in known}
    earlier = {id(tensor.variable): tensor for tensor in before}
    for variable, kind, optimizer, name in _variables(model, what):
        if id(variable) not in seen:
            inner = key(variable)  # Keras looks for a scope each time that it is asked
            seen.add(id(variable))
            seen.add(id(inner))
            if kind == SLOT and not len(inner.shape):
                kind = COUNT
            name = unique_name(name, names)
            one = earlier.get(id(variable))
            if one is None or (one.kind, one.optimizer, one.spec.name) != (kind, optimizer, name):
                one = StateTensor(variable, _spec(inner, ROLES[kind], name), kind, optimizer)
            yield one


def _variables(model: Any, what: str) -> Iterator[tuple[Any, str, str, str]]:
    """(variable, kind, optimizer, name) of each variable, in the state's order; an optimizer's scalars are among its slots. A variable may
    come twice: its first row counts."""
    for variable in [*model.trainable_variables, *untracked.trained(model)]:
        yield variable, WEIGHT, "", variable_name(variable)
    # A tf.Module lists the variables of optimizers among its own.
    of_optimizers = set()
    for owner, optimizer in optimizers(model).items():
        for variable in optimizer_variables(optimizer):
            of_optimizers.add(id(variable))
            if what == "full":
                yield variable, SLOT, owner, variable_name(variable)
    metrics = [variable for metric in getattr(model, "metrics", ()) for variable in metric.variables]
    own_seeds = seeds(model)
    others = of_optimizers | {id(variable) for variable in metrics} | {id(variable) for _, variable in own_seeds}
    for variable in listed_variables(model):
        if id(variable) not in others and not is_seed(variable):
            yield variable, STATISTIC, "", variable_name(variable)
    for name, variable in private_api.lookup_weights(model):
        yield variable, STATISTIC, "", name
    for variable in metrics:
        yield variable, METRIC, "", variable_name(variable)
    for name, variable in own_seeds:
        yield variable, SEED, "", name
    for variable in untracked.written(model):
        yield variable, GENERATOR if untracked.is_generator(variable) else WRITTEN, "", variable_name(variable)


def _spec(inner: Any, role: str, name: str) -> TensorSpec:
    """``inner``: the variable's key. TensorFlow's has the ``shape`` that Keras makes anew each time."""
    dtype = getattr(inner.dtype, "name", None) or str(inner.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise UnsupportedError(
            where=f"variable {name}",
            expected=f"one of the dtypes {', '.join(sorted(DTYPES))}",
            found=dtype,
            todo="keep this variable out of the model's saved state, or store it in one of these dtypes",
        )
    shape = tuple(inner.shape)
    if None in shape:  # of a lookup of Keras 2, whose vocabulary may grow: the shape is that of the value
        shape = np.asarray(inner).shape
    return TensorSpec(name, dtype, tuple(map(int, shape)), role)


def listed_bytes(model: Any) -> int:
    """The bytes of all variables that the model lists."""
    key = variables_for(model).key
    return sum(_spec(key(one), RANK_LOCAL, variable_name(one)).nbytes for one in listed_variables(model))


def unique_name(name: str, taken: set[str]) -> str:
    """``name``, or the first of ``name#2``, ``name#3``, ... if ``name`` is in ``taken``. The result is added to ``taken``."""
    candidate, n = name, 1
    while candidate in taken:
        n += 1
        candidate = f"{name}#{n}"
    taken.add(candidate)
    return candidate
