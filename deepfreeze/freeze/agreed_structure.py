"""The structure of a training's checkpoints. Rank 0 lays it out; every rank then has the same one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from deepfreeze.errors import StructureError
from deepfreeze.format.dataset_groups import OPTIMIZERS, TRAINED, group, is_untracked
from deepfreeze.format.structure import Structure
from deepfreeze.format.vocabularies import Vocabulary, to_values
from deepfreeze.freeze import skeleton
from deepfreeze.notices import Notify
from deepfreeze.ranks.world import World, each, on_rank_0, together
from deepfreeze.state.applied import built_for
from deepfreeze.state.dataset_paths import LocatedState, LocatedTensor, locate
from deepfreeze.state.derived_state import objects_of
from deepfreeze.state.keras_objects import framework_of
from deepfreeze.state.training_state import TrainingState
from deepfreeze.state.vocabularies import vocabularies_of, warning_of_ranks


@dataclass(frozen=True)
class AgreedStructure:
    """``structure``: the structure that all checkpoints of a training have; ``located``: this rank's variables, each with its dataset in
    the model file; ``head``: the bytes of the model file before the first tensor, on rank 0 alone (b"" on the other ranks); ``gap``:
    (offset, bytes) of the pages of the model file that belong to no tensor, and that the first ranks write together."""

    structure: Structure
    located: LocatedState
    head: bytes
    gap: tuple[int, int]

    @property
    def tensors(self) -> tuple[LocatedTensor, ...]:
        """This rank's variables, each with its place in the model file."""
        return self.located.tensors


def agree(state: TrainingState, world: World, notify: Notify, granule: int) -> AgreedStructure:
    """Collective. Lays out the model file on rank 0, sends the structure to every rank, and checks that each rank has its tensors.
    ``notify``: is told, on rank 0, if stock Keras can't load the file, and if lookups of the ranks have different vocabularies;
    ``granule``: of the placement, in bytes.

    ``StructureError`` if the tensors of a rank differ from rank 0's; the errors of ``dataset_paths.locate`` and ``skeleton.build``. A rank
    without an error of its own raises ``WorldError`` then."""
    located, vocabularies = each(world, lambda: (locate(state), vocabularies_of(objects_of(state.model))))
    if located.warning is not None and world.rank == 0:
        notify("warning", located.warning)
    heads: list[bytes] = []

    def lay_out() -> tuple[bytes, tuple[int, int]]:
        values = {**to_values(vocabularies), **_optimizer_values(state, located)}
        built = skeleton.build(state, located, framework_of(state.model), granule, values)
        heads.append(built.head)
        return built.structure.to_bytes(), built.gap

    laid_out, gap = on_rank_0(world, lay_out)
    structure = Structure.from_bytes(laid_out, "rank 0's structure")

    def compare() -> list[Vocabulary]:
        _require_same_tensors(located, structure, world.rank)
        return vocabularies

    warning = warning_of_ranks(together(world, compare))
    if warning is not None and world.rank == 0:
        notify("warning", warning)
    return AgreedStructure(structure, located, b"".join(heads), gap)


def _require_same_tensors(located: LocatedState, structure: Structure, rank: int) -> None:
    """``StructureError`` if this rank's variables have other datasets, shapes, dtypes or roles than rank 0's ``structure``."""
    mine = {one.path: (one.spec.shape, one.spec.dtype, one.spec.role) for one in located.tensors}
    theirs = {p.path: (p.spec.shape, p.spec.dtype, p.spec.role) for p in structure.tensors}
    differing = sorted(path for path in mine.keys() | theirs.keys() if mine.get(path) != theirs.get(path))
    if differing:
        path = differing[0]
        raise StructureError(
            where=f"rank {rank}",
            expected=f"the same model as on rank 0, where {path} is {_description(theirs.get(path))}",
            found=f"{_description(mine.get(path))} ({len(differing)} differ)",
            todo="build the same model, with the same optimizer, on every rank",
        )


def _description(spec: tuple | None) -> str:
    """(shape, dtype, role) as text, "float32 of shape (3, 4) (replicated)" for example."""
    return "missing" if spec is None else f"{spec[1]} of shape {spec[0]} ({spec[2]})"


def _optimizer_values(state: TrainingState, located: LocatedState) -> dict[str, Any]:
    """The structure's named values (``format.dataset_groups``) of a training's optimizers. Empty for a model whose only optimizer trains
    its trainable variables, as that of most models does."""
    values: dict[str, Any] = {}
    inner: set[str] = set()
    paths: dict[int, str] = {}
    for one in located.tensors:
        tensor = state.find(one.variable)
        paths.setdefault(id(one.variable), one.path)
        if tensor is not None and tensor.optimizer and group(one.path) != tensor.optimizer:
            inner.add(one.path if is_untracked(one.path) else one.path.rpartition("/vars/")[0])
    if inner:
        values[OPTIMIZERS] = sorted(inner)
    optimizer = getattr(state.model, "optimizer", None)
    variables = None if optimizer is None else built_for(state.model, optimizer)
    if variables is not None and state.what == "full" and not _same(variables, state.model.trainable_variables):
        trained = [paths[id(variable)] for variable in variables if id(variable) in paths]
        if len(trained) == len(variables):
            values[TRAINED] = trained
    return values


def _same(one: Any, other: Any) -> bool:
    return [id(variable) for variable in one] == [id(variable) for variable in other]
