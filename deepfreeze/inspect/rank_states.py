"""Compares the states that each rank has saved for itself at two checkpoints: the model's random seeds, the user's objects (``extra=``)
and the process's random number generators (``rng=``)."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from deepfreeze.format import attachment_tree, state_tree
from deepfreeze.format.attachment_tree import DATA, EPOCH
from deepfreeze.format.named_values import ATTACHMENTS
from deepfreeze.store.catalog import use
from deepfreeze.store.run import Run
from deepfreeze.thaw.rank_records import each_record, file_of
from deepfreeze.thaw.read import split_private

EXTRA, RNG, SEED = "extra", "rng", "seed"
_OWN = {DATA: "the place in the data (data=)", EPOCH: "the metrics and the history of the epoch (data=)"}
_OWN_LOGS = "deepfreeze_"  # names that Checkpoint adds to Keras's logs: seconds differ in each training


@dataclass(frozen=True)
class StateChange:
    """A state that differs between two checkpoints. ``kind``: ``EXTRA``, ``RNG`` or ``SEED``; ``name``: the object's, the generator's
    ("numpy"), or the tensor's; ``ranks``: on which it differs, or is saved in one checkpoint alone."""

    kind: str
    name: str
    ranks: tuple[int, ...]

    def __str__(self) -> str:
        extra = _OWN.get(self.name, f"extra[{self.name!r}]")
        what = {EXTRA: extra, RNG: f"the generator of {self.name} (rng=)", SEED: f"seed {self.name}"}
        ranks = ", ".join(map(str, self.ranks))
        return f"{what[self.kind]}, rank{'s' if len(self.ranks) > 1 else ''} {ranks}"


# (kind, name) -> the state as bytes, which are equal if and only if the states are.
States = dict[tuple[str, str], bytes]


def saved_states(run: str | os.PathLike[str], step: int) -> list[States]:
    """The states that each rank has saved for itself at the checkpoint of ``step``, in the order of the ranks. NotFoundError if there is
    no such checkpoint, CorruptError if a record is damaged."""
    opened = Run.open(run)

    def read(number: int) -> list[States]:
        manifest = opened.manifest(number)
        structure = opened.structure(manifest.structure)
        found = []
        for rank, record in enumerate(each_record(opened, manifest)):
            where = opened.step_path(number) / file_of(manifest, rank)
            private = split_private(structure, record.private, where)
            states: States = {(SEED, name): value.tobytes() for name, value in private.items()}
            if ATTACHMENTS in record.values:
                states |= _attached(record.values[ATTACHMENTS], where)
            found.append(states)
        return found

    return use(opened, step, read)


def changed_states(first: list[States], second: list[States]) -> tuple[StateChange, ...]:
    """The states that differ, in the order of the first rank's; of a rank that one list lacks, all of its states."""
    ranks: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank in range(max(len(first), len(second))):
        a, b = (side[rank] if rank < len(side) else {} for side in (first, second))
        for key in [*a, *(key for key in b if key not in a)]:
            if a.get(key) != b.get(key):
                ranks[key].append(rank)
    return tuple(StateChange(kind, name, tuple(found)) for (kind, name), found in ranks.items())


def _attached(data: bytes, where: object) -> States:
    """The states of ``extra=`` and ``rng=``, each encoded by itself."""
    tree = attachment_tree.decode(data, where)
    objects = {name: _compared(name, state) for name, state in tree[attachment_tree.OBJECTS].items()}
    parts = ((EXTRA, objects), (RNG, tree[attachment_tree.GENERATORS]))
    return {
        (kind, str(name)): state_tree.encode(state, kind) for kind, states in parts for name, state in states.items()
    }


def _compared(name: str, state: Any) -> Any:
    """The part of an object's ``state`` that two trainings can have in common."""
    if name != EPOCH or not isinstance(state, dict) or not isinstance(state.get("logs"), dict):
        return state
    logs = {name: values for name, values in state["logs"].items() if not str(name).startswith(_OWN_LOGS)}
    return {**state, "logs": logs}
