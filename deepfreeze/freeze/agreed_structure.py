"""The structure of a training's checkpoints, laid out by rank 0 and the same on every rank."""

from __future__ import annotations

from dataclasses import dataclass

from deepfreeze.errors import StructureError
from deepfreeze.format.structure import Structure
from deepfreeze.format.tensors import TensorSpec
from deepfreeze.freeze import skeleton
from deepfreeze.ranks.world import World, each, on_rank_0, together
from deepfreeze.state.attachments import PATH as EXTRA
from deepfreeze.state.attachments import Attachments
from deepfreeze.state.dataset_paths import LocatedState, LocatedTensor, locate
from deepfreeze.state.keras_objects import framework_of
from deepfreeze.state.training_state import TrainingState


@dataclass(frozen=True)
class AgreedStructure:
    """``structure``: of each checkpoint of a training; ``located``: this rank's variables of its tensors; ``extra``: the attachments'
    tensor, if there are attachments; ``head``: the bytes of the model file before the first tensor, on rank 0 (b"" on the others)."""

    structure: Structure
    located: LocatedState
    extra: tuple[TensorSpec, ...]
    head: bytes

    @property
    def tensors(self) -> tuple[LocatedTensor, ...]:
        """This rank's variables, each with its place in the model file."""
        return self.located.tensors


def agree(
    state: TrainingState, attachments: Attachments, world: World, before: AgreedStructure | None = None
) -> AgreedStructure:
    """Collective. ``before``: what was agreed on for an earlier ``fit`` of the same model; Keras is not asked again then, and the
    structure stays, unless the attachments need more room now.

    ``StructureError`` on every rank if a rank's tensors are not rank 0's; ``UnsupportedError`` as ``locate`` raises it."""
    needed = max(together(world, attachments.nbytes)) if attachments else 0
    room = before.extra[0].nbytes if before is not None and before.extra else 0
    extra = (attachments.spec(max(needed, room)),) if attachments else ()
    if before is not None and before.extra == extra:
        return before
    located = before.located if before is not None else each(world, lambda: locate(state))
    if before is None:
        located.warn()
    heads: list[bytes] = []

    def lay_out() -> bytes:
        structure, head = skeleton.build(state, located, extra, framework_of(state.model))
        heads.append(head)
        return structure.to_bytes()

    structure = Structure.from_bytes(on_rank_0(world, lay_out), "rank 0's structure")
    each(world, lambda: _compare(located, structure, world.rank))
    return AgreedStructure(structure, located, extra, b"".join(heads))


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
