"""All ranks agree on the structure of the model file: rank 0 lays it out and stores it, the others check theirs against it."""

from __future__ import annotations

from deepfreeze.errors import StructureError
from deepfreeze.format.structure import Structure
from deepfreeze.freeze import skeleton
from deepfreeze.ranks.world import World, each, on_rank_0, together
from deepfreeze.state.attachments import PATH as EXTRA
from deepfreeze.state.attachments import Attachments
from deepfreeze.state.dataset_paths import LocatedState
from deepfreeze.state.keras_objects import framework_of
from deepfreeze.state.training_state import TrainingState
from deepfreeze.store.target import Target
from deepfreeze.store.writable_run import WritableRun


def agree(
    state: TrainingState, located: LocatedState, attachments: Attachments, target: Target, world: World
) -> tuple[Structure, bytes]:
    """Collective. The structure of every checkpoint of this attempt, and the bytes of the file's head, which rank 0 alone has (b""
    on the others). ``StructureError`` on every rank if a rank's tensors are not rank 0's."""
    heads: list[bytes] = []
    extra = [attachments.spec(max(together(world, attachments.nbytes)))] if attachments else []

    def lay_out() -> bytes:
        structure, head = skeleton.build(state, located, extra, framework_of(state.model))
        heads.append(head)
        WritableRun.open(target.run).store_structure(structure)
        return structure.to_bytes()

    structure = Structure.from_bytes(on_rank_0(world, lay_out), target.run)
    each(world, lambda: _compare(located, structure, world.rank))
    return structure, b"".join(heads)


def _compare(located: LocatedState, structure: Structure, rank: int) -> None:
    mine = {one.path: (one.spec.shape, one.spec.dtype, one.spec.role) for one in located.tensors}
    theirs = {p.path: (p.spec.shape, p.spec.dtype, p.spec.role) for p in structure.tensors if p.path != EXTRA}
    differing = sorted(path for path in mine.keys() | theirs.keys() if mine.get(path) != theirs.get(path))
    if differing:
        path = differing[0]
        raise StructureError(
            where=f"rank {rank}",
            expected=f"the same model as on rank 0, where {path} is {_text(theirs.get(path))}",
            found=f"{_text(mine.get(path))} ({len(differing)} differ)",
            todo="build the same model, with the same optimizer, on every rank",
        )


def _text(spec: tuple | None) -> str:
    return "missing" if spec is None else f"{spec[1]} of shape {spec[0]} ({spec[2]})"
