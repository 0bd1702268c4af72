"""Checks that all ranks have the same options and have built the same model. The check comes before training: a rank whose model differs
would wait for ever for a checkpoint, or a tensor, that the other ranks don't have.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from deepfreeze.errors import OptionError, StructureError
from deepfreeze.ranks.world import World

# (description, name) of a variable: ("float32 of shape (3, 4)", "dense/kernel"); or of an optimizer: ("optimizer Adam", "").
Row = tuple[str, str]


def require_same_options(world: World, mine: dict[str, str]) -> None:
    """Collective: every rank calls it, with its options as {name: text}. ``OptionError`` on every rank if an option differs; it names
    the first rank that differs from rank 0, and the option."""
    by_rank = world.gather(mine)
    for rank, options in enumerate(by_rank):
        for name, value in options.items():
            # The repr of a policy object without a __repr__ has its address, which differs between ranks.
            if value != by_rank[0][name] and " at 0x" not in value:
                expected, todo = f"{name}={by_rank[0][name]}, as on rank 0", "pass the same options on every rank"
                raise OptionError(where=f"rank {rank}", expected=expected, found=f"{name}={value}", todo=todo)


def require_same_model(world: World, mine: Sequence[Row], named: bool = False) -> None:
    """Collective: every rank calls it, with the description of its model (``TrainingState.description``). ``StructureError`` on every
    rank unless all ranks have the same weights, in the same order, of the same shapes and dtypes, and optimizers of the same classes. The
    error names the first rank that differs from rank 0, and the first difference. Metrics are not compared.

    ``named``: names must be the same too. Keras counts the layers of a process, so the names differ if one rank has built another
    model before. Horovod matches the ops of a graph by names that follow from them, and would wait for ever.
    """
    if world.size == 1:
        return
    compared = repr(list(mine) if named else [description for description, _ in mine])
    if len(set(world.gather(hashlib.sha256(compared.encode()).digest()))) == 1:
        return
    rank_0s = world.broadcast(mine)
    for rank, difference in enumerate(world.gather(_difference(rank_0s, mine, named))):
        if difference is not None:
            expected, instead, count = difference
            todo = "build the same model, with the same optimizer, on every rank"
            if expected[0] == instead[0]:
                todo = "give the layers names, or build the same models in the same order on every rank: Horovod goes by names"
            raise StructureError(
                where=f"rank {rank}",
                expected=f"the same model as on rank 0, which has {_text(expected)}",
                found=f"{_text(instead)} in its place ({count} differ)",
                todo=todo,
            )


def _difference(rank_0s: Sequence[Row], mine: Sequence[Row], named: bool) -> tuple[Row, Row, int] | None:
    """The first difference, as (rank 0's row, this rank's row at the same place, number of places that differ); None if there is none.
    A row that one rank lacks is ("nothing", "")."""
    longest = max(len(rank_0s), len(mine))
    pairs = zip(*([*rows, *[("nothing", "")] * (longest - len(rows))] for rows in (rank_0s, mine)))
    differing = [(there, here) for there, here in pairs if (there != here if named else there[0] != here[0])]
    # A difference in dtype, shape or class tells more than one in a name, whose number depends on the layers built before.
    first = next((pair for pair in differing if pair[0][0] != pair[1][0]), differing[0] if differing else None)
    return None if first is None else (*first, len(differing))


def _text(row: Row) -> str:
    description, name = row
    return f"{name}, {description}" if name else description
