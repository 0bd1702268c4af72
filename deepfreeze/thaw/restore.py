"""Gives a model the values of a checkpoint: all of them, or none where anything is wrong.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepfreeze.errors import CorruptError, Error, NotFoundError, OptionError, StructureError
from deepfreeze.events.messages import to_logger
from deepfreeze.format.dataset_groups import group, is_lookup, is_loss_scale, is_metric, is_untracked, optimizer_paths
from deepfreeze.format.named_values import ATTACHMENTS
from deepfreeze.format.structure import Placed, Structure
from deepfreeze.format.tensors import PER_RANK, REPLICATED, TensorSpec
from deepfreeze.format.vocabularies import of_values
from deepfreeze.frameworks.memory import Room
from deepfreeze.frameworks.table import variables_for
from deepfreeze.ranks.world import current
from deepfreeze.state import lineage
from deepfreeze.state.attachments import PATH_1, Attachments, SavedAttachments
from deepfreeze.state.derived_state import PREDICT, TEST, TRAIN, DerivedState, objects_of
from deepfreeze.state.keras_objects import framework_of, optimizer_variables, optimizers
from deepfreeze.state.supported import require_supported
from deepfreeze.state.training_state import TrainingState, listed_bytes
from deepfreeze.state.unbuilt import unbuilt_layers
from deepfreeze.state.vocabularies import vocabularies_of, warning_of_others
from deepfreeze.store.catalog import CheckpointInfo, marks_of, parent_of
from deepfreeze.store.quarantine import Fallback
from deepfreeze.store.run import Run
from deepfreeze.store.tags import tagged_step
from deepfreeze.thaw import awaited, by_name
from deepfreeze.thaw.extent_table import ExtentTable
from deepfreeze.thaw.optimizer_building import build_as_saved, line_for_all
from deepfreeze.thaw.rank_records import file_of, read_records
from deepfreeze.thaw.read import TensorReader, split_private

_LISTED = 10  # differences named in a message
_SMALL = 64 << 20  # bytes that a restore takes without a look at the model
_TIMES = 8  # so many times a model's weights an optimizer and its metrics may take together; Adam's take twice as many
_LEFT = "left in place: a job's start, or deepfreeze verify --quarantine, moves it away"


@dataclass
class Ready:
    """A checkpoint's values in memory, read and checked, for the variables of a model, which is not changed before ``assign``.
    ``warning``: for the user of a model whose lookups have other vocabularies than the checkpoint's, else None."""

    info: CheckpointInfo
    _model: Any
    _variables: dict[str, Any]  # by path, as the rooms
    _rooms: dict[str, Room]
    _awaited: dict[TensorSpec, Room]  # of variables that are not known yet
    attachments: SavedAttachments | None  # None: nobody asked for them, or the checkpoint has none
    _derived: DerivedState
    _whole: bool  # all weights of the model are among the variables; else they were assigned before
    warning: str | None = None
    derived: bool = False  # whether ``assign`` has had an object derive its state

    def assign(self, functions: Collection[str] = (TRAIN, TEST, PREDICT)) -> CheckpointInfo:
        """Assigns all values, and frees each variable's old value as it does; then the model's objects derive from them what they derive.
        If there are such objects, the model makes those of these ``functions`` anew that it has traced. To be called once, outside of any
        graph. ``StructureError`` if an object raises."""
        paths = list(self._rooms)
        for path in paths:
            self._rooms.pop(path).assign(self._variables[path])
        awaited.keep(self._model, self._awaited, replace=self._whole)
        given = [self._variables[path] for path in paths]
        lineage.remember(given, parent_of(self.info))
        self.derived = self._derived.load(given, self._whole, self.info.path)
        if self.derived:
            self._derived.make_functions_anew(*functions)
        return self.info


def restore(
    model: Any,
    run: str | os.PathLike[str],
    step: int | str | None = None,
    *,
    rank: int | None = None,
    world_size: int | None = None,
) -> CheckpointInfo:
    """Restores ``model`` from a checkpoint (``step``: its step or its tag, None for the newest that is whole), written by any
    number of ranks.

    The model must be built; its optimizer is built here if need be. A checkpoint of state "weights" restores the
    weights and leaves the optimizer and seeds alone; so does any checkpoint for a model that was not compiled.
    ``rank`` of ``world_size`` is the caller's (Horovod's by default): ranks that the writing job had get their own
    seeds back, further ranks get seeds derived from rank 0's, different on each.

    Changes nothing unless all is well: StructureError if the model's tensors are not the checkpoint's (by their place
    in the weights file, shape and dtype), CorruptError if any byte is damaged, NotFoundError if there is no such
    checkpoint. For that, all values are in host memory once before the first variable is assigned: as many bytes as
    the model takes from the checkpoint, and at most 64 MB more while they are read; until each variable is assigned,
    these stand beside its old value. Nothing is copied: Keras's variables take the buffers over.

    When all variables have their values, objects whose ``load_own_variables`` derives state from them (an adapted ``Normalization``) are
    asked to load them, once each, as stock Keras's ``load_weights`` asks them; ``StructureError`` if one raises: the model is restored in
    part then. Functions that such a model has traced are made anew. A warning names each lookup with another vocabulary than the
    checkpoint's, on rank 0.

    With ``step=None`` an older checkpoint takes the place of one that is damaged; warnings in the log (``deepfreeze``) say
    which and how. Nothing in the run is moved or locked: a job's start moves the damaged one below ``RUN/damaged``, or
    ``deepfreeze verify --quarantine``. If none is whole, CorruptError is raised.

    A file that is not in the page cache is read past it when ``world_size`` is 1; several ranks share the cache.
    """
    require_supported("deepfreeze.restore", model)
    world = current()
    rank = world.rank if rank is None else rank
    world_size = max(world.size, rank + 1) if world_size is None else world_size
    if not 0 <= rank < world_size:
        todo = "pass this process's rank and the number of ranks"
        found = f"rank {rank} of {world_size}"
        raise OptionError(where="restore", expected="0 <= rank < world_size", found=found, todo=todo)
    require_built(model)
    if step is not None:
        number = tagged_step(Run.open(run), step) if isinstance(step, str) else step
        return _assign(prepare(model, run, number, rank, world_size), model, run, rank)
    search = Fallback(run, to_logger)
    ready = _newest(search, model, rank, world_size)
    search.report(_LEFT)
    if search.damages:
        to_logger("warning", f"restored step {ready.info.step} of {run}, the newest that is whole")
    return _assign(ready, model, run, rank)


def _assign(ready: Ready, model: Any, run: str | os.PathLike[str], rank: int) -> CheckpointInfo:
    """Assigns all values. Says, on rank 0, which of them wait for their variables, and which lookups have another vocabulary."""
    ready.info = ready.info.with_metrics(marks_of(Run.open(run)))  # first: an error would leave the model as it is
    info, waiting = ready.assign(), awaited.left(model)
    if ready.warning is not None and rank == 0:
        to_logger("warning", ready.warning)
    if waiting and rank == 0:
        to_logger(
            "warning",
            f"{_named([spec.name for spec in waiting])} of step {info.step} of {info.run}: the model lists no such variables. They get "
            "their values when a fit with deepfreeze.Checkpoint traces the step that writes them; deepfreeze.read gives the values now",
        )
    return info


def _named(names: list[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def require_built(model: Any) -> None:
    """StructureError if the model has no variables yet."""
    if not getattr(model, "built", True) and unbuilt_layers(model):
        todo = "build it first: call it on one batch, or model.build(input_shape)"
        where = f"model {model.name!r}"
        raise StructureError(where=where, expected="a model with weights", found="none yet", todo=todo)


def prepare(
    model: Any,
    run: str | os.PathLike[str],
    step: int,
    rank: int,
    world_size: int,
    table: ExtentTable | None = None,
    attachments: Attachments | None = None,
    weights: bool = True,
    optimizers: bool = True,
) -> Ready:
    """The first half of ``restore``: reads and checks all values, builds the model's optimizer if need be, and pairs the values with
    the model's variables; ``Ready.assign`` is the second half. Between the two, ranks agree that all of them have read the same
    checkpoint. ``table``: the checkpoint's, if the caller has read it already; ``attachments``: those for which the saved ones are
    read; ``optimizers``: False for a model whose optimizers are restored later, as if it were not compiled; ``weights``: False when that
    has come: the optimizers, the seeds and the metrics alone are read. Raises what ``restore`` does with ``step=``."""
    with TensorReader(Run.open(run), step, table) as reader:
        structure = reader.structure
        compiled = optimizers and getattr(model, "optimizer", None) is not None
        framework = variables_for(model)
        framework.settle(model)
        make_room = framework.rooms()
        wanted = _wanted(structure, compiled)
        of_compiled = _unknown_without_compile(structure)
        placed = [one for one in wanted if one.spec.role != PER_RANK and (weights or one.path in of_compiled)]

        def own_variables() -> dict[str, Any]:
            if compiled and _has_slots(structure, model):
                build_as_saved(structure, model)
            return _variables_of(reader, model, compiled)

        variables = None
        if _is_far_larger(placed, model):  # memory is taken for the tensors that the model has, and for no others
            variables = own_variables()
            placed = [one for one in placed if one.path in variables or is_untracked(one.path)]
        rooms = {one.path: make_room(one.spec) for one in placed}
        # Threads read while this one builds the optimizer and, where names don't tell, asks Keras for its layout.
        landings = zip(placed, rooms.values(), strict=True)
        with reader.start(landings, past_cache=world_size == 1, between=True) as reading:
            variables = own_variables() if variables is None else variables
            objects = objects_of(model)
            derived = DerivedState(model, objects)
            saved_words = of_values(structure.values) if weights else []
            own_words = vocabularies_of(objects) if saved_words else []
            warning = warning_of_others(saved_words, own_words, step)
            private, saved = _of_records(reader, rank, attachments)
            reading.finish()
        for one in structure.per_rank:
            if one.path in private:
                rooms[one.path] = make_room(one.spec)
                rooms[one.path].data[:] = private[one.path].reshape(-1).view(np.uint8)
        info = reader.described  # a job's start asks for no metrics: each rank would read one file more
    own = {path: room for path, room in rooms.items() if path in variables}
    later = {
        placed.spec: rooms[placed.path]
        for placed in wanted
        if placed.path in rooms and placed.path not in variables and is_untracked(placed.path)
    }
    return Ready(info, model, variables, own, later, saved, derived, weights, warning)


def _is_far_larger(placed: list[Placed], model: Any) -> bool:
    """Whether these tensors take far more bytes than a model and its optimizer: then they are another model's, or hostile."""
    nbytes = sum(one.nbytes for one in placed)
    return nbytes > _SMALL and nbytes > _SMALL + _TIMES * listed_bytes(model)


def variables_of(reader: TensorReader, model: Any) -> dict[str, Any]:
    """The model's variables by the paths of the checkpoint's tensors. StructureError unless the model has these tensors."""
    return _variables_of(reader, model, getattr(model, "optimizer", None) is not None)


def _variables_of(reader: TensorReader, model: Any, compiled: bool) -> dict[str, Any]:
    state = TrainingState.of(model, reader.structure.state if compiled else "weights")
    # What the step writes besides may be unknown yet.
    own = {tensor.spec for tensor in state.tensors}
    wanted = [
        one
        for one in _wanted(reader.structure, compiled)
        if one.spec.role == REPLICATED or not is_untracked(one.path) or one.spec in own
    ]
    return by_name.variables(reader.structure, wanted, state) or _asked_of_keras(reader, state, compiled)


def _asked_of_keras(reader: TensorReader, state: TrainingState, compiled: bool) -> dict[str, Any]:
    """The model's variables by their datasets in the file that Keras would write. StructureError unless the model has the tensors
    of the checkpoint."""
    from deepfreeze.state.dataset_paths import locate  # imports h5py, which most do without

    located = locate(state, reader.structure.layout).tensors
    tensors = {tensor.path: tensor for tensor in located if not is_untracked(tensor.path)}
    others = {tensor.spec: tensor for tensor in located if is_untracked(tensor.path)}
    saved = {one.spec: one.path for one in _wanted(reader.structure, compiled) if is_untracked(one.path)}
    for path, tensor in awaited.pairs(saved, others):
        tensors[path] = others.pop(tensor.spec)
    tensors |= {tensor.path: tensor for tensor in others.values() if tensor.path not in tensors}
    _check_same(reader, state.model, {path: tensor.spec for path, tensor in tensors.items()}, compiled)
    return {path: tensor.variable for path, tensor in tensors.items()}


def _newest(search: Fallback, model: Any, rank: int, world_size: int) -> Ready:
    """``prepare`` of the newest checkpoint that is whole. Ranks that each restore by themselves read the same files, so all of them
    take the same checkpoint."""
    try:
        while (step := search.next()) is not None:
            try:
                return prepare(model, search.path, step, rank, world_size)
            except (CorruptError, NotFoundError) as error:
                # What is gone was deleted by a job's retention, or moved away by a job's start or verify --quarantine.
                if isinstance(error, CorruptError) and search.run.has_step(step):
                    search.found(step, [error])
    except Error:
        search.report("left in place")
        raise
    raise search.nothing_left()


def _has_slots(structure: Structure, model: Any) -> bool:
    """Whether the checkpoint has more variables of the model's optimizer than the model: an optimizer makes its slots when it is
    built, at the first step at the latest."""
    optimizer = optimizers(model).get("optimizer")
    saved = sum(group(placed.path) == "optimizer" for placed in structure.tensors)
    return optimizer is not None and saved > len(optimizer_variables(optimizer))


def _wanted(structure: Structure, compiled: bool) -> list[Placed]:
    """The tensors that a model takes. One that was not ``compiled`` has neither optimizers nor seeds."""
    if compiled:
        return list(structure.tensors)
    others = _unknown_without_compile(structure)
    return [placed for placed in structure.tensors if placed.path not in others]


def _unknown_without_compile(structure: Structure) -> set[str]:
    """The paths of the tensors that a model does not take before it is compiled."""
    return optimizer_paths(structure) | {one.path for one in structure.tensors if group(one.path) == "seeds"}


def _check_same(reader: TensorReader, model: Any, specs: dict[str, Any], compiled: bool) -> None:
    """Raises StructureError, naming the first differences, unless the model has exactly the checkpoint's tensors.

    A model that was not ``compiled`` has no optimizer to compare.
    """
    saved = {placed.path: placed for placed in _wanted(reader.structure, compiled)}
    differences = []
    for path in sorted(saved.keys() | specs.keys()):
        if path not in specs or path not in saved:
            # Keras makes metric states when it first trains and resets them every epoch: a new model has none yet. And older
            # checkpoints lack what Keras leaves out: loss scales, the weights of lookups, and variables that the model does not list.
            later = is_loss_scale(path) or is_lookup(path)
            optional = is_metric(path) or (later and path not in saved) or path == PATH_1
            if is_untracked(path):
                optional = path not in saved or awaited.may_wait(saved[path].spec, model)
            if not optional:
                side = "only the checkpoint has" if path in saved else "only the model has"
                spec = saved[path].spec if path in saved else specs[path]
                differences.append(f"{side} {path} ({spec.name}, {spec.dtype}{list(spec.shape)})")
        elif (saved[path].spec.shape, saved[path].spec.dtype) != (specs[path].shape, specs[path].dtype):
            mine, theirs = specs[path], saved[path].spec
            text = f"{path} ({mine.name}) is {mine.dtype}{list(mine.shape)} in the model and"
            differences.append(f"{text} {theirs.dtype}{list(theirs.shape)} in the checkpoint")
    if differences:
        more = f"; and {len(differences) - _LISTED} more" if len(differences) > _LISTED else ""
        between = _between_kerases(reader.structure, model)
        todo = "build and compile the model as the job that wrote the checkpoint did, or give this model another run directory"
        todo = line_for_all(reader.structure, model) or todo
        if between:
            todo = "Keras 2 and 3 keep a model's state differently; deepfreeze.transfer takes its weights, by name"
        raise StructureError(
            where=reader.described.path,
            expected="a checkpoint of this model, with the same optimizer",
            found=between + "; ".join(differences[:_LISTED]) + more,
            todo=f"nothing was changed: {todo}",
        )


def _between_kerases(structure: Structure, model: Any) -> str:
    """The beginning of a message that names both versions, if the checkpoint is Keras 2's and the model Keras 3's or the other way
    round; else empty."""
    if not hasattr(model, "save_weights"):
        return ""
    saved, own = structure.framework, framework_of(model)
    if saved["keras"].split(".")[0] == own["keras"].split(".")[0]:
        return ""
    return f"one of {saved['api']} {saved['keras']} and a model of {own['api']} {own['keras']}: "


def _of_records(
    reader: TensorReader, rank: int, attachments: Attachments | None
) -> tuple[dict[str, np.ndarray], SavedAttachments | None]:
    """What the records have for ``rank``: the values of the per-rank tensors by path, and the attachments. The values are the rank's own,
    or are derived from rank 0's if the writing job had no such rank."""
    structure, manifest = reader.structure, reader.manifest
    folder, world = reader.path.parent, manifest.world_size
    own = rank if rank < world else 0
    wanted = [own] if attachments or structure.per_rank else []
    if attachments and attachments.every_rank:
        wanted = list(range(world))
    records = dict(zip(wanted, read_records(reader.run, manifest, wanted), strict=True))
    private = {
        number: split_private(structure, record.private, folder / file_of(manifest, number))
        for number, record in records.items()
    }
    values = {
        placed.path: private[own][placed.spec.name]
        if own == rank
        else fold(private[own][placed.spec.name], rank, number)
        for number, placed in enumerate(structure.per_rank)
        if placed.path != PATH_1
    }
    by_rank = {number: record.values[ATTACHMENTS] for number, record in records.items() if ATTACHMENTS in record.values}
    for placed in structure.per_rank:
        if placed.path == PATH_1:
            by_rank = {number: found[placed.spec.name].tobytes() for number, found in private.items()}
    if not attachments or own not in by_rank:
        return values, None
    return values, SavedAttachments(by_rank, world, folder / file_of(manifest, own))


def fold(value: np.ndarray, rank: int, number: int) -> np.ndarray:
    """A seed for a rank that the writing job did not have, derived from ``value``, rank 0's seed; same shape and dtype. Each rank and
    each ``number`` (of the tensor among the per-rank tensors) gets another result, and always the same one.

    Integers are drawn evenly from 0 to the dtype's maximum; a ``value`` of another dtype is returned as it is.
    """
    if value.dtype.kind not in "iu":
        return value
    words = np.frombuffer(value.tobytes().ljust(-(-value.nbytes // 4) * 4, b"\0"), "<u4")
    sequence = np.random.SeedSequence(entropy=words.tolist(), spawn_key=(rank, number))
    state = sequence.generate_state(max(1, -(-value.nbytes // 4)), np.uint32).astype("<u4")
    unsigned = np.frombuffer(state.tobytes()[: value.nbytes], value.dtype.newbyteorder("<").str.replace("i", "u"))
    limit = unsigned.dtype.type(np.iinfo(value.dtype).max)
    return (unsigned & limit).astype(value.dtype).reshape(value.shape)
