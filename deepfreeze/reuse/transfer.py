"""Parts of a checkpoint into a model, by name: transfer learning.

Uses Keras objects, imports neither Keras nor TensorFlow.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from deepfreeze.errors import OptionError, StructureError
from deepfreeze.format.strict_json import short
from deepfreeze.format.structure import Placed
from deepfreeze.format.tensors import numpy_dtype
from deepfreeze.frameworks import memory
from deepfreeze.ranks.world import current
from deepfreeze.reuse.match import Matches
from deepfreeze.reuse.names import Names, Patterns, Rename, Renaming
from deepfreeze.reuse.report import Matched, Skipped, TransferReport, listed
from deepfreeze.reuse.weights import Known, of_checkpoint, of_model, pair
from deepfreeze.state import lineage
from deepfreeze.state.supported import require_working_optimizers
from deepfreeze.store.catalog import parent_of
from deepfreeze.thaw.read import TensorReader, read
from deepfreeze.thaw.restore import require_built

_FLOATS = ("bfloat16", "float16", "float32", "float64")
_UNCLEAR = (
    "nothing was changed: give these layers names of your own, or build the model in a fresh process (or after "
    "keras.utils.clear_session()), or say what is meant with rename=: {old: new} for single layers, str for all names as they are"
)

log = logging.getLogger("deepfreeze")


def transfer(
    model: Any,
    run: str | os.PathLike[str],
    step: int | None = None,
    *,
    include: Names = None,
    exclude: Names = None,
    rename: Renaming = None,
    dry_run: bool = False,
    on_mismatch: str = "error",
    verbose: int = 1,
) -> TransferReport:
    """Copies weights of a checkpoint (the newest for ``step=None``) into the variables of ``model`` that have their names.

    Weights alone, trainable or not (BatchNorm statistics are weights); never an optimizer's variables, metrics or seeds.
    The model must be built, and need not be compiled. What has no counterpart on the other side is left alone and reported.

    Names are those that ``list(deepfreeze.read(run))`` gives, Keras's own: ``conv1_conv/kernel``. Where the name of the whole
    model stands before all of them (``nt3/conv1d/kernel``, in Sequential and subclassed models), it can be left out, and is not
    compared. Numbers that Keras put behind the names of nameless layers (``dense_1``) depend on what else the process had built
    before; they are compared by their order (``transfer_match`` has the rules), and where that is ambiguous nothing is guessed.

    Args:
        include, exclude: a glob, or several, over the checkpoint's names, where ``*`` also spans ``/``; one that fits the
            beginning of a name up to a ``/`` covers all below it, so "conv1_conv" is a whole layer. Default: everything.
        rename: what the checkpoint's names become in the model: a mapping of names or of their beginnings up to a ``/``
            ({"resnet50": "backbone"}; "" is the root of all names; the longest entry counts), or a function from name to
            name. Numbers in what it gives are taken at their word: ``rename=str`` takes all names as they are.
        dry_run: reads no values and changes nothing. The report, which is written first, says what would be done. Then the
            call's error is raised, if there is one; only damaged bytes, and values too large for a variable, show when
            values are read. To get the report of mismatches as an object, pass ``on_mismatch="skip"`` too.
        on_mismatch: for a weight that has another shape in the model, or another dtype: "error", or "skip" to leave it
            alone. Floating-point values are converted to the variable's floating-point type, and that is no mismatch,
            unless a value is too large for it.
        verbose: 1: rank 0 writes the report, a row for each layer, to standard error; 0: nobody does.

    Reads only what the chosen weights take in the file (rounded up to extents, which are checked whole), and changes
    nothing before all of it is read and checked. Under Horovod each rank does this for itself.

    A run that this model's weights begin (``Checkpoint`` in a new run directory) records the checkpoint as its parent.

    Raises ``OptionError`` for an argument that means nothing, such as a pattern that fits no weight, ``StructureError`` for
    mismatches, ambiguous names, or if not a single weight can be copied, ``CorruptError`` for damaged bytes,
    ``NotFoundError`` if there is no such checkpoint. After any of them the model is as it was.
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
            report = _shown(plan.report(dry_run), verbose)  # before anything is refused: it shows why
        if on_mismatch == "error":
            plan.refuse_mismatches()
        if not dry_run:
            plan.read(model, on_mismatch)
        plan.refuse_nothing()
        if not dry_run:
            plan.assign()
            report = _shown(plan.report(dry_run), verbose)
    return report


def _shown(report: TransferReport, verbose: int) -> TransferReport:
    """The report, which rank 0 has written to standard error if it is to."""
    if verbose and current().rank == 0:
        sys.stderr.write(f"deepfreeze: {report}\n")
    return report


@dataclass(eq=False)
class _Step:
    """One weight to copy; ``value`` when it is read."""

    placed: Placed
    variable: Any
    matched: Matched
    value: Any = None


class _Plan:
    """What is to be done with every weight of both sides."""

    def __init__(self, model: Any, reader: TensorReader, patterns: Patterns, rename: Rename) -> None:
        self._reader = reader
        self._name = getattr(model, "name", type(model).__name__)
        saved = of_checkpoint(reader.structure)
        own, variables = of_model(model)
        known = [name for one in saved for name in one.names]
        rename.check(known)
        patterns.check([*known, *(name for one in own for name in _called(one, rename))])
        found = pair(saved, own, model, rename)
        chosen = {one.spec.name for one in saved if patterns.against(*one.names) is None}
        self._refuse_unclear(found, chosen)
        _refuse_same(found, chosen)
        partners = {one.spec.name: other.spec for one, other in found.pairs}

        self._steps: list[_Step] = []
        self._mismatched: list[Matched] = []
        self._skipped: list[Skipped] = []
        for one in saved:
            spec, target = one.spec, partners.get(one.spec.name)
            reason = patterns.against(*one.names) or (None if target else "not in the model")
            if target is None or reason is not None:
                self._skipped.append(Skipped(spec.name, spec.dtype, spec.shape, spec.nbytes, reason or ""))
                continue
            matched = Matched(spec.name, spec.dtype, spec.shape, spec.nbytes, target.name, target.dtype, target.shape)
            if _fits(matched):
                self._steps.append(_Step(reader.structure.by_name[spec.name], variables[target.name], matched))
            else:
                self._mismatched.append(matched)

        paired = {other.spec.name for _, other in found.pairs}
        self._wanted = {
            one.spec.name
            for one in own
            if one.spec.name not in paired and patterns.against(*_called(one, rename)) is None
        }
        self._own = [one.spec.name for one in own]

    def refuse_mismatches(self) -> None:
        """StructureError if a weight does not fit its variable."""
        if self._mismatched:
            raise StructureError(
                where=self._reader.info.path,
                expected="weights of the same shape and kind as the model's",
                found=listed([str(one) for one in self._mismatched]),
                todo='nothing was changed: leave these out with exclude=, or pass on_mismatch="skip"',
            )

    def refuse_nothing(self) -> None:
        """StructureError if there is nothing to copy."""
        if not self._steps:
            theirs = listed([*(one.name for one in self._mismatched), *(one.name for one in self._skipped)], 3)
            raise StructureError(
                where=self._reader.info.path,
                expected=f"a weight for model {self._name!r}",
                found=f"none that fits and is asked for: the checkpoint has {theirs}; the model {listed(self._own, 3)}",
                todo="nothing was changed: pass rename= where names differ, and dry_run=True to see what becomes of each",
            )

    def read(self, model: Any, on_mismatch: str) -> None:
        """Reads, checks and converts all values. CorruptError for damage; StructureError for a value that is too large for its
        variable's type, unless that is to be skipped."""
        make_room = memory.for_model(model)
        rooms = [
            (one.placed, (memory.numpy_room if one.matched.cast else make_room)(one.placed.spec)) for one in self._steps
        ]
        # Several ranks of a node read the same bytes: then the page cache serves all but the first.
        with self._reader.start(rooms, past_cache=current().size == 1) as reading:
            reading.finish()
        too_large = []
        for one, (_, room) in zip(self._steps, rooms, strict=True):
            one.value = room.value
            if one.matched.cast:
                with np.errstate(over="ignore"):
                    one.value = room.value.astype(numpy_dtype(one.matched.target_dtype))
                if np.isfinite(room.value).all() and not np.isfinite(one.value).all():
                    too_large.append(one)
        self._steps = [one for one in self._steps if one not in too_large]
        self._mismatched += [one.matched for one in too_large]
        if too_large and on_mismatch == "error":
            raise StructureError(
                where=self._reader.info.path,
                expected="values that the model's variables can hold",
                found=listed(
                    [f"values of {one.matched.name} too large for {one.matched.target_dtype}" for one in too_large]
                ),
                todo='nothing was changed: leave these out with exclude=, or pass on_mismatch="skip"',
            )

    def assign(self) -> None:
        """Gives the model its values."""
        info = self._reader.info
        for one in self._steps:
            one.variable.assign(one.value)
            one.value = None
        lineage.remember([one.variable for one in self._steps], parent_of(info))
        log.info("%d weights of %s, step %d, given to %s", len(self._steps), info.run, info.step, self._name)

    def report(self, dry_run: bool) -> TransferReport:
        """As far as it was carried out."""
        order = {placed.spec.name: n for n, placed in enumerate(self._reader.structure.tensors)}
        given = {one.matched.target for one in self._steps} | {one.target for one in self._mismatched}
        return TransferReport(
            info=self._reader.info,
            dry_run=dry_run,
            loaded=tuple(one.matched for one in self._steps),
            mismatched=tuple(sorted(self._mismatched, key=lambda one: order[one.name])),
            skipped=tuple(self._skipped),
            missing=tuple(name for name in self._own if name in self._wanted),
            untouched=tuple(name for name in self._own if name not in self._wanted and name not in given),
        )

    def _refuse_unclear(self, found: Matches, chosen: set[str]) -> None:
        for theirs, ours, weights in found.unclear:
            if any(weight.spec.name in chosen for weight in weights):
                text = f"{listed(theirs, 4)} in the checkpoint and {listed(ours, 4)} in the model, which Keras numbered"
                expected = "layers that can be told apart by name"
                raise StructureError(where=self._reader.info.path, expected=expected, found=text, todo=_UNCLEAR)


def _called(one: Known, rename: Rename) -> tuple[str, ...]:
    """All names by which a caller may mean a weight of the model."""
    return (*one.names, *map(rename.original, one.names))


def _refuse_same(found: Matches, chosen: set[str]) -> None:
    """Renaming has given two of the chosen weights one name."""
    names = Counter(weight.name for weight in found.saved if weight.spec.name in chosen)
    twice = [weight.spec.name for weight in found.saved if weight.spec.name in chosen and names[weight.name] > 1]
    if twice:
        todo = "rename them apart, or leave all but one out with exclude="
        text = f"the same name for {listed(twice)}"
        raise OptionError(where="rename=", expected="a name for each weight", found=text, todo=todo)


def _fits(matched: Matched) -> bool:
    both_float = matched.dtype in _FLOATS and matched.target_dtype in _FLOATS
    return matched.shape == matched.target_shape and (both_float or not matched.cast)
