"""The tree in the named value ``attachments`` of a rank's record: the states of the user's objects (``extra=``) and of the process's random
number generators (``rng=``), by name (docs/format.md, "Attachments")."""

from __future__ import annotations

from typing import Any

from deepfreeze.errors import CorruptError
from deepfreeze.format import state_tree
from deepfreeze.format.strict_json import DAMAGED

OBJECTS, GENERATORS = "objects", "rng"
_EPOCH_OPEN = "epoch_open"
# DeepFreeze's own objects have names that begin with this: the place in the data, and what Keras keeps of the epoch under way.
OWN = "deepfreeze/"
DATA, EPOCH = OWN + "data", OWN + "epoch"


def encode(objects: dict[str, Any], generators: dict[str, Any], epoch_open: bool = False) -> bytes:
    """The bytes of these states. ``epoch_open``: the step is an epoch's last one, and callbacks had not seen the epoch's end. Raises what
    ``state_tree.encode`` raises for a state that can't be saved."""
    return state_tree.encode(
        {OBJECTS: objects, GENERATORS: generators} | ({_EPOCH_OPEN: True} if epoch_open else {}), "extra"
    )


def is_epoch_open(tree: dict[str, Any]) -> bool:
    """Whether ``encode`` was told so of the decoded ``tree``."""
    return tree.get(_EPOCH_OPEN) is True


def decode(data: bytes, where: object) -> dict[str, Any]:
    """The states of ``OBJECTS`` and of ``GENERATORS``, each by name. CorruptError (at ``where``) for bytes that ``encode`` has not made."""
    tree = state_tree.decode(data, where)
    if not isinstance(tree, dict) or not all(isinstance(tree.get(key), dict) for key in (OBJECTS, GENERATORS)):
        found = "a tree without them"
        raise CorruptError(where=where, expected="states of objects and generators", found=found, todo=DAMAGED)
    return tree
