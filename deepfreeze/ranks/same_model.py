"""Whether all ranks have the same options and have built the same model, asked before the first of them waits for a checkpoint, or
a tensor, that another one does not have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from deepfreeze.errors import OptionError, StructureError
from deepfreeze.ranks.world import World

# Dtype and shape of a variable, or the class of an optimizer; and the variable's name ("" for an optimizer).
Row = tuple[str, str]


def require_same_options(world: World, mine: dict[str, str]) -> None:
    """Collective. ``OptionError`` on every rank, naming the first rank that differs from rank 0, and its option."""
    asked = world.gather(mine)
    for rank, theirs in enumerate(asked):
        for name, value in theirs.items():
            if value != asked[0][name] and " at 0x" not in value:  # a policy that does not say what it is
                expected, todo = f"{name}={asked[0][name]}, as on rank 0", "pass the same options on every rank"
                raise OptionError(where=f"rank {rank}", expected=expected, found=f"{name}={value}", todo=todo)


def require_same_model(world: World, mine: Sequence[Row], named: bool = False) -> None:
    """Collective. ``StructureError`` on every rank, naming the first rank that differs from rank 0, and in what, unless all have
    the same weights, of the same shapes and dtypes, and the same optimizers. Metrics may have their variables or not yet.

    ``named``: also by the same names. Keras counts the layers of a process, so that names differ where one rank has built
    another model before; Horovod's ops in a graph are matched by them, and wait for ever.
    """
    if world.size == 1:
        return
    asked = repr(list(mine) if named else [what for what, _ in mine])
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


def _difference(theirs: Sequence[Row], mine: Sequence[Row], named: bool) -> tuple[Row, Row, int] | None:
    """The first thing that rank 0 has, what is here in its place, and how many things differ; None if none does."""
    longest = max(len(theirs), len(mine))
    pairs = zip(*([*rows, *[("nothing", "")] * (longest - len(rows))] for rows in (theirs, mine)))
    differing = [(there, here) for there, here in pairs if (there != here if named else there[0] != here[0])]
    # A name follows from what stands before it: what something is says more.
    first = next((pair for pair in differing if pair[0][0] != pair[1][0]), differing[0] if differing else None)
    return None if first is None else (*first, len(differing))


def _text(row: Row) -> str:
    what, name = row
    return f"{name}, {what}" if name else what
