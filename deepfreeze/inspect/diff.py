"""Compares two checkpoints, tensor by tensor. Two tensors are in memory at a time."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace

import numpy as np

from deepfreeze.format.structure import Placed
from deepfreeze.format.tensors import BFLOAT16
from deepfreeze.inspect.pairs import pairs
from deepfreeze.inspect.verify import OnProgress
from deepfreeze.store.catalog import CheckpointInfo
from deepfreeze.thaw.read import read

_BLOCK = 1 << 18  # elements compared at a time: in double precision they stay in the processor's cache


@dataclass(frozen=True)
class Change:
    """A tensor that both checkpoints have, with the same dtype and shape and other values. In the following, a is the first checkpoint's
    value of an element, and b the second's.

    - ``name``, ``second_name``: its names in the checkpoints. ``label``: the tensor for people, as in ``Pair``.
    - ``size``: the number of elements. ``differing``: how many of them differ. Two NaNs don't differ, nor do 0.0 and -0.0.
    - ``nonfinite``: how many of the differing elements are NaN or infinite in either checkpoint.
    - ``largest``: max|b - a|. ``relative``: max|b - a| / max|a|, infinite if all a are 0. Both are infinite if ``nonfinite`` is not 0.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    differing: int
    nonfinite: int
    largest: float
    relative: float
    second_name: str
    label: str


@dataclass(frozen=True)
class Unlike:
    """A tensor that both checkpoints have, with different dtypes or shapes. ``first``, ``second``: dtype and shape in each, such as
    "float32 [3, 4]"; names and ``label`` as those of ``Change``."""

    name: str
    first: str
    second: str
    second_name: str
    label: str


@dataclass(frozen=True)
class Comparison:
    """``compared``: "weights", or "all" tensors. ``same``: how many of these are equal in both checkpoints. ``changed``: the largest
    relative change first. ``unlike``, ``only_first``: in the first checkpoint's order; ``only_second``: in the second's."""

    first: CheckpointInfo
    second: CheckpointInfo
    compared: str
    same: int
    changed: tuple[Change, ...]
    unlike: tuple[Unlike, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def identical(self) -> bool:
        """Whether both checkpoints have the same of the compared tensors, with the same values."""
        return not (self.changed or self.unlike or self.only_first or self.only_second)


def diff(
    first: tuple[str | os.PathLike[str], int | str | None],
    second: tuple[str | os.PathLike[str], int | str | None],
    progress: OnProgress | None = None,
    everything: bool = False,
) -> Comparison:
    """Compares two checkpoints, each given as (run, step or tag); None means the newest. The weights are compared, with ``everything`` also
    the optimizers' variables, metrics and seeds. ``inspect/pairs`` says which tensors are the same one. Of per-rank tensors rank 0's values
    are compared. ``progress`` is called with (bytes read so far, bytes to read in all), of both checkpoints together.

    Raises NotFoundError if there is no such run or checkpoint, CorruptError if a file of one is damaged.
    """
    with read(*first) as a, read(*second) as b:
        paired = pairs(a.structure, b.structure, everything)
        comparable = [one for one in paired.both if _kind(one.first) == _kind(one.second)]
        total = sum(2 * one.first.spec.nbytes for one in comparable)
        done = 0
        changed = []
        for one in comparable:
            name, other = one.first.spec.name, one.second.spec.name
            change = compare(one.first, a[name], b[other])
            if change is not None:
                changed.append(replace(change, second_name=other, label=one.label))
            done += 2 * one.first.spec.nbytes
            if progress is not None:
                progress(done, total)
        changed.sort(key=lambda change: (-change.relative, -change.largest, change.name))
        return Comparison(
            first=a.info,
            second=b.info,
            compared="all" if everything else "weights",
            same=len(comparable) - len(changed),
            changed=tuple(changed),
            unlike=tuple(
                Unlike(one.first.spec.name, _kind(one.first), _kind(one.second), one.second.spec.name, one.label)
                for one in paired.both
                if _kind(one.first) != _kind(one.second)
            ),
            only_first=paired.only_first,
            only_second=paired.only_second,
        )


def compare(placed: Placed, first: np.ndarray, second: np.ndarray) -> Change | None:
    """The change of one tensor between two arrays of its shape and dtype; None if no element differs."""
    a, b = _plain(placed, first), _plain(placed, second)
    differing = nonfinite = 0
    largest = scale = 0.0
    for at in range(0, a.size, _BLOCK):
        x, y = a[at : at + _BLOCK], b[at : at + _BLOCK]
        unequal = x != y
        if a.dtype.kind in "fc":
            unequal &= ~(np.isnan(x) & np.isnan(y))
            finite = np.isfinite(x) & np.isfinite(y)
            nonfinite += int(np.count_nonzero(unequal & ~finite))
            scale = max(scale, _most(_wide(x[np.isfinite(x)])))
        else:
            finite = np.ones(len(x), bool)
            scale = max(scale, _most(_wide(x)))
        differing += int(np.count_nonzero(unequal))
        measured = unequal & finite
        if measured.any():
            with np.errstate(over="ignore"):  # a difference beyond the largest double is infinite, as it should be
                gap = _most(_wide(y[measured]) - _wide(x[measured]))
            # Whole numbers beyond 2^53 may differ although they are equal as doubles. Different whole numbers differ by 1 at least.
            largest = max(largest, gap if a.dtype.kind in "fc" else max(gap, 1.0))
    if not differing:
        return None
    if nonfinite:
        largest = relative = math.inf
    else:
        relative = largest / scale if scale else math.inf
    spec = placed.spec
    return Change(
        spec.name, spec.dtype, spec.shape, a.size, differing, nonfinite, largest, relative, spec.name, spec.name
    )


def _kind(placed: Placed) -> str:
    """A tensor's dtype and shape: "float32 [3, 4]"."""
    return f"{placed.spec.dtype} {list(placed.spec.shape)}"


def _plain(placed: Placed, value: np.ndarray) -> np.ndarray:
    """The values as an array of one dimension and of a dtype that numpy itself has. A bfloat16 is the upper half of a float32."""
    flat = value.reshape(-1)
    if placed.spec.dtype == BFLOAT16:
        return (flat.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    return flat


def _wide(values: np.ndarray) -> np.ndarray:
    """The values in double precision."""
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def _most(values: np.ndarray) -> float:
    """The largest magnitude of the values; 0.0 if there are none."""
    return float(np.abs(values).max()) if values.size else 0.0
