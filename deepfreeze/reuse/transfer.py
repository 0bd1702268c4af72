"""Transfer learning: copies weights of a checkpoint into another model, by name.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepfreeze.errors import OptionError, StructureError
from deepfreeze.events.messages import to_logger
from deepfreeze.format.strict_json import short
from deepfreeze.format.structure import Placed
from deepfreeze.format.tensors import numpy_dtype
from deepfreeze.format.vocabularies import of_values
from deepfreeze.frameworks import memory
from deepfreeze.frameworks.table import variables_for
from deepfreeze.matching.match import Matches
from deepfreeze.matching.weights import NamedWeight, of_checkpoint, pair
from deepfreeze.ranks.world import current
from deepfreeze.reuse.model_weights import numbered, of_model
from deepfreeze.reuse.names import Names, Patterns, Rename, Renaming
from deepfreeze.reuse.report import Matched, NotCopied, TransferReport, listed
from deepfreeze.state import lineage
from deepfreeze.state.derived_state import PREDICT, TEST, TRAIN, DerivedState, objects_of
from deepfreeze.state.supported import require_working_optimizers
from deepfreeze.state.vocabularies import vocabularies_of, warning_of_others
from deepfreeze.store.catalog import parent_of
from deepfreeze.thaw.read import TensorReader, read
from deepfreeze.thaw.restore import require_built

_FLOATS = ("bfloat16", "float16", "float32", "float64")
_UNCLEAR = (
    "nothing was changed: give these layers names of your own, or build the model in a fresh process (or after "
    "keras.utils.clear_session()), or say what is meant with rename=: {old: new} for single layers, str for all names as they are"
)


def transfer(
    model: Any,
    run: str | os.PathLike[str],
    step: int | str | None = None,
    *,
    include: Names = None,
    exclude: Names = None,
    rename: Renaming = None,
    dry_run: bool = False,
    on_mismatch: str = "error",
    verbose: int = 1,
) -> TransferReport:
    """Copies weights of a checkpoint into the variables of ``model`` that have the same names. ``step``: the
    checkpoint's step or its tag, None for the newest.

    Only weights are copied, trainable or not (BatchNorm statistics are weights); never an optimizer's variables, metrics or seeds.
    The model must be built, and need not be compiled. Weights that only one of both sides has are left alone, and the report names them.

    Names are Keras's own, ``conv1_conv/kernel`` for example; ``list(deepfreeze.read(run))`` lists them. In Sequential and subclassed
    models the name of the whole model stands before each name (``nt3/conv1d/kernel``). It is not compared, and patterns may leave it out.
    The numbers that Keras puts behind the names of nameless layers (``dense_1``) depend on which layers the process had built before.
    Such layers are compared by their order; if two ways of pairing them are possible, an error asks the caller which one is meant.

    Args:
        include, exclude: a glob, or a list of globs, over the checkpoint's names. ``*`` also spans ``/``. A glob that matches the
            beginning of a name up to a ``/`` covers all names that begin so: "conv1_conv" covers a whole layer. Default: all weights.
        rename: turns the checkpoint's names into the model's. Either a mapping of names, or of their beginnings up to a ``/``:
            {"resnet50": "backbone"}; "" is the root of all names, and the longest entry that fits counts. Or a function from name to
            name. Numbers in a name that ``rename`` has made are compared as they are: ``rename=str`` compares all names as they are.
        dry_run: reads no values and changes nothing. The report says what would be done. It is written first, then the call raises
            the error that it would raise without ``dry_run``, if there is one. Only damaged bytes, and values too large for a
            variable, are not noticed. To get the report of mismatches as an object, pass ``on_mismatch="skip"`` too.
        on_mismatch: what to do with a weight that has another shape or dtype in the model: "error", or "skip" to leave it
            alone. Floating-point values are converted to the variable's floating-point type; that is a mismatch only if a value
            is too large for the type.
        verbose: 1: rank 0 writes the report, a row for each layer, to standard error; 0: no rank writes it.

    Reads only the extents of the model file that have bytes of the chosen weights, and checks each extent as a whole. The model is not
    changed before all values are read and checked. Under Horovod each rank calls ``transfer`` for itself.

    An object all of whose variables were copied then derives from them what it derives when stock Keras loads its weights, and a lookup
    with another vocabulary than the checkpoint's is named in a warning (see ``deepfreeze.restore``).

    If the model is trained in a new run directory afterwards, that run records the checkpoint as its parent (``CheckpointInfo.parent``).

    Raises ``OptionError`` for a wrong argument, such as a pattern that matches no weight; ``StructureError`` for mismatches, for ambiguous
    names, and if no weight at all can be copied; ``UnsupportedError`` for a model with Horovod's own optimizer on Keras 3;
    ``CorruptError`` for damaged bytes; ``NotFoundError`` if there is no such checkpoint. After any of them the model is as it was; but a
    ``StructureError`` that names an object which can't load its values comes after the copy.
    """
    if on_mismatch not in ("error", "skip"):
        todo = "pass one of these"
        raise OptionError(where="on_mismatch=", expected='"error" or "skip"', found=short(on_mismatch), todo=todo)
    if verbose not in (0, 1):
        todo = "pass one of these"
        raise OptionError(where="verbose=", expected="1 or 0", found=short(verbose), todo=todo)
    patterns, renamed = Patterns(include, exclude), Rename(rename)
    require_working_optimizers("deepfreeze.transfer", model)
    require_built(model)
    with read(run, step) as reader:
        plan = _Plan(model, reader, patterns, renamed)
        if dry_run:
            report = _shown(plan.report(dry_run), verbose)  # before the call is refused: the report shows why
        if on_mismatch == "error":
            plan.refuse_mismatches()
        if not dry_run:
            plan.read(model, on_mismatch)
        plan.refuse_empty()
        if not dry_run:
            plan.assign()
            report = _shown(plan.report(dry_run), verbose)
    return report


def _shown(report: TransferReport, verbose: int) -> TransferReport:
    """Returns the report. On rank 0, and if ``verbose``, it is also written to standard error."""
    if verbose and current().rank == 0:
        sys.stderr.write(f"deepfreeze: {report}\n")
    return report


@dataclass(eq=False)
class _Copy:
    """One weight to copy. ``value``: the array or tensor to assign, None before it is read and after it is assigned."""

    placed: Placed
    variable: Any
    matched: Matched
    value: Any = None


class _Plan:
    """The plan of one transfer: what is to be done with every weight of the checkpoint and of the model."""

    def __init__(self, model: Any, reader: TensorReader, patterns: Patterns, rename: Rename) -> None:
        self._reader = reader
        self._name = getattr(model, "name", type(model).__name__)
        objects = objects_of(model)
        self._derived = DerivedState(model, objects)
        words = of_values(reader.structure.values)
        self._warning = warning_of_others(words, vocabularies_of(objects), reader.described.step) if words else None
        saved = of_checkpoint(reader.structure)
        own, variables = of_model(model)
        saved_names = [name for weight in saved for name in weight.names]
        rename.check(saved_names)
        patterns.check([*saved_names, *(name for weight in own for name in _all_names(weight, rename))])
        matches = pair(saved, own, numbered(model), rename)
        chosen = {weight.spec.name for weight in saved if patterns.reason_to_skip(*weight.names) is None}
        self._refuse_unclear(matches, chosen)
        _refuse_equal_names(matches, chosen)
        partners = {one.spec.name: other.spec for one, other in matches.pairs}

        self._copies: list[_Copy] = []
        self._mismatched: list[Matched] = []
        self._skipped: list[NotCopied] = []
        for weight in saved:
            spec, target = weight.spec, partners.get(weight.spec.name)
            reason = patterns.reason_to_skip(*weight.names) or (None if target else "not in the model")
            if target is None or reason is not None:
                self._skipped.append(NotCopied(spec.name, spec.dtype, spec.shape, spec.nbytes, reason or ""))
                continue
            matched = Matched(spec.name, spec.dtype, spec.shape, spec.nbytes, target.name, target.dtype, target.shape)
            if _fits(matched):
                self._copies.append(_Copy(reader.structure.by_name[spec.name], variables[target.name], matched))
            else:
                self._mismatched.append(matched)

        paired = {other.spec.name for _, other in matches.pairs}
        self._missing = {
            weight.spec.name
            for weight in own
            if weight.spec.name not in paired and patterns.reason_to_skip(*_all_names(weight, rename)) is None
        }
        self._model_names = [weight.spec.name for weight in own]

    def refuse_mismatches(self) -> None:
        """StructureError if a weight has another shape or dtype than its variable."""
        if self._mismatched:
            raise StructureError(
                where=self._reader.described.path,
                expected="weights of the same shape and kind as the model's",
                found=listed([str(one) for one in self._mismatched]),
                todo='nothing was changed: leave these out with exclude=, or pass on_mismatch="skip"',
            )

    def refuse_empty(self) -> None:
        """StructureError if there is no weight to copy."""
        if not self._copies:
            theirs = listed([*(one.name for one in self._mismatched), *(one.name for one in self._skipped)], 3)
            raise StructureError(
                where=self._reader.described.path,
                expected=f"a weight for model {self._name!r}",
                found=f"none that fits and is asked for: the checkpoint has {theirs}; the model {listed(self._model_names, 3)}",
                todo="nothing was changed: pass rename= where names differ, and dry_run=True to see what becomes of each",
            )

    def read(self, model: Any, on_mismatch: str) -> None:
        """Reads, checks and converts all values. CorruptError for damaged bytes; StructureError for values that are too large for their
        variable's type, unless ``on_mismatch`` is "skip"."""
        make_room = variables_for(model).rooms()
        rooms = [
            (one.placed, (memory.numpy_room if one.matched.cast else make_room)(one.placed.spec))
            for one in self._copies
        ]
        # If several ranks of a node read the same bytes, the page cache serves all ranks but the first.
        with self._reader.start(rooms, past_cache=current().size == 1) as reading:
            reading.finish()
        too_large = []
        for one, (_, room) in zip(self._copies, rooms, strict=True):
            one.value = room.value
            if one.matched.cast:
                with np.errstate(over="ignore"):
                    one.value = room.value.astype(numpy_dtype(one.matched.target_dtype))
                if np.isfinite(room.value).all() and not np.isfinite(one.value).all():
                    too_large.append(one)
        self._copies = [one for one in self._copies if one not in too_large]
        self._mismatched += [one.matched for one in too_large]
        if too_large and on_mismatch == "error":
            raise StructureError(
                where=self._reader.described.path,
                expected="values that the model's variables can hold",
                found=listed(
                    [f"values of {one.matched.name} too large for {one.matched.target_dtype}" for one in too_large]
                ),
                todo='nothing was changed: leave these out with exclude=, or pass on_mismatch="skip"',
            )

    def assign(self) -> None:
        """Assigns the values to the model's variables, and notes the checkpoint as their origin. An object all of whose variables are
        given values derives from them what it derives."""
        info = self._reader.described
        for one in self._copies:
            one.variable.assign(one.value)
            one.value = None
        given = [one.variable for one in self._copies]
        lineage.remember(given, parent_of(info))
        if self._derived.load(given, False, info.path):
            self._derived.make_functions_anew(TRAIN, TEST, PREDICT)
        if self._warning is not None and current().rank == 0:
            to_logger("warning", self._warning)
        to_logger("info", f"{len(self._copies)} weights of {info.run}, step {info.step}, given to {self._name}")

    def report(self, dry_run: bool) -> TransferReport:
        """The report of the plan as it is now: weights that turned out to be too large are among the mismatches."""
        order = {placed.spec.name: n for n, placed in enumerate(self._reader.structure.tensors)}
        given = {one.matched.target for one in self._copies} | {one.target for one in self._mismatched}
        return TransferReport(
            info=self._reader.info,
            dry_run=dry_run,
            loaded=tuple(one.matched for one in self._copies),
            mismatched=tuple(sorted(self._mismatched, key=lambda one: order[one.name])),
            skipped=tuple(self._skipped),
            missing=tuple(name for name in self._model_names if name in self._missing),
            untouched=tuple(name for name in self._model_names if name not in self._missing and name not in given),
        )

    def _refuse_unclear(self, matches: Matches, chosen: set[str]) -> None:
        """StructureError if an ambiguous family has one of the chosen weights."""
        for theirs, ours, weights in matches.unclear:
            if any(weight.spec.name in chosen for weight in weights):
                text = f"{listed(theirs, 4)} in the checkpoint and {listed(ours, 4)} in the model, which Keras numbered"
                expected = "layers that can be told apart by name"
                raise StructureError(where=self._reader.described.path, expected=expected, found=text, todo=_UNCLEAR)


def _all_names(weight: NamedWeight, rename: Rename) -> tuple[str, ...]:
    """All names by which the user may call a weight of the model: its own names, and those that it has in the checkpoint."""
    return (*weight.names, *map(rename.original, weight.names))


def _refuse_equal_names(matches: Matches, chosen: set[str]) -> None:
    """OptionError if renaming has given two of the chosen weights the same name."""
    names = Counter(weight.name for weight in matches.saved if weight.spec.name in chosen)
    twice = [weight.spec.name for weight in matches.saved if weight.spec.name in chosen and names[weight.name] > 1]
    if twice:
        todo = "rename them apart, or leave all but one out with exclude="
        text = f"the same name for {listed(twice)}"
        raise OptionError(where="rename=", expected="a name for each weight", found=text, todo=todo)


def _fits(matched: Matched) -> bool:
    """Whether a weight can be copied: it has the variable's shape, and its dtype or, as the variable's, a floating-point one."""
    both_float = matched.dtype in _FLOATS and matched.target_dtype in _FLOATS
    return matched.shape == matched.target_shape and (both_float or not matched.cast)
