"""Whether all ranks have the same options and have built the same model, asked before the first of them waits for a checkpoint, or
a tensor, that another one does not have.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import hashlib
from typing import Any

from deepfreeze.core.errors import OptionError, StructureError
from deepfreeze.core.keras_model import is_seed, optimizer_variables, optimizers, tf_variable, variable_name
from deepfreeze.core.world import World

# What a variable, or an optimizer, is, and its name.
_Row = tuple[str, str]


def require_same_options(world: World, mine: dict[str, str]) -> None:
    """Collective. ``OptionError`` on every rank, naming the first rank that differs from rank 0, and its option."""
    asked = world.gather(mine)
    for rank, theirs in enumerate(asked):
        for name, value in theirs.items():
            if value != asked[0][name] and " at 0x" not in value:  # a policy that does not say what it is
                expected, todo = f"{name}={asked[0][name]}, as on rank 0", "pass the same options on every rank"
                raise OptionError(where=f"rank {rank}", expected=expected, found=f"{name}={value}", todo=todo)


def require_alike(world: World, model: Any, named: bool = False) -> None:
    """Collective. ``StructureError`` on every rank, naming the first rank that differs from rank 0, and in what, unless all have
    the same weights, of the same shapes and dtypes, and the same optimizers. Metrics may have their variables or not yet.

    ``named``: also by the same names. Keras counts the layers of a process, so that names differ where one rank has built
    another model before; Horovod's ops in a graph are matched by them, and wait for ever.
    """
    if world.size == 1:
        return
    mine = _describe(model)
    asked = repr(mine if named else [what for what, _ in mine])
    if len(set(world.gather(hashlib.sha256(asked.encode()).digest()))) == 1:
        return
    theirs = world.broadcast(mine)
    for rank, found in enumerate(world.gather(_difference(theirs, mine, named))):
        if found is not None:
            expected, instead, count = found
            todo = "build the same model, with the same optimizer, on every rank"
            if expected[0] == instead[0]:
                todo = "give the layers names, or build the same models in the same order on every rank: Horovod goes by names"
            raise StructureError(
                where=f"rank {rank}",
                expected=f"the same model as on rank 0, which has {_text(expected)}",
                found=f"{_text(instead)} in its place ({count} differ)",
                todo=todo,
            )


def _describe(model: Any) -> list[_Row]:
    weights = model.weights if hasattr(model, "weights") else model.variables
    rows = [_row(variable) for variable in weights if not is_seed(variable)]
    for name, optimizer in optimizers(model).items():
        rows += [(f"{name} {type(optimizer).__name__}", ""), *map(_row, optimizer_variables(optimizer))]
    return rows


def _row(variable: Any) -> _Row:
    tensor = tf_variable(variable)
    return f"{tensor.dtype.name} of shape {tuple(int(n) for n in tensor.shape)}", variable_name(variable)


def _difference(theirs: list[_Row], mine: list[_Row], named: bool) -> tuple[_Row, _Row, int] | None:
    """The first thing that rank 0 has, what is here in its place, and how many things differ; None if none does."""
    longest = max(len(theirs), len(mine))
    pairs = zip(*(rows + [("nothing", "")] * (longest - len(rows)) for rows in (theirs, mine)))
    differing = [(there, here) for there, here in pairs if (there != here if named else there[0] != here[0])]
    # A name follows from what stands before it: what something is says more.
    first = next((pair for pair in differing if pair[0][0] != pair[1][0]), differing[0] if differing else None)
    return None if first is None else (*first, len(differing))


def _text(row: _Row) -> str:
    what, name = row
    return f"{name}, {what}" if name else what
