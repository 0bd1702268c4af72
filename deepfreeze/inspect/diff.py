"""How far two checkpoints are apart: tensor by tensor, with two tensors in memory at a time."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import numpy as np

from deepfreeze.format.structure import Placed
from deepfreeze.format.tensors import BFLOAT16
from deepfreeze.inspect.verify import OnProgress
from deepfreeze.store.catalog import CheckpointInfo
from deepfreeze.thaw.read import TensorReader, read

_PIECE = 1 << 18  # elements that are compared at once; in double precision they are in the processor's cache


@dataclass(frozen=True)
class Change:
    """A tensor that both have, with other values in the second.

    ``differing`` of its ``size`` elements differ. ``largest`` is max|b - a| and ``relative`` max|b - a| / max|a|, a being
    the first's values, over the elements that are finite in both; infinite where ``nonfinite`` (the number of elements that
    differ and are NaN or infinite in either) is not 0, and ``relative`` also where a is all zeros. Two NaNs don't differ, nor
    do 0.0 and -0.0.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    differing: int
    nonfinite: int
    largest: float
    relative: float


@dataclass(frozen=True)
class Unlike:
    """A tensor that has another dtype or shape in the second, like "float32 [3, 4]"."""

    name: str
    first: str
    second: str


@dataclass(frozen=True)
class Comparison:
    """``changed`` comes with the largest relative change first, names in the first one's order; ``same`` counts tensors."""

    first: CheckpointInfo
    second: CheckpointInfo
    same: int
    changed: tuple[Change, ...]
    unlike: tuple[Unlike, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def identical(self) -> bool:
        """Whether both have the same tensors with the same values."""
        return not (self.changed or self.unlike or self.only_first or self.only_second)


def diff(
    first: tuple[str | os.PathLike[str], int | None],
    second: tuple[str | os.PathLike[str], int | None],
    progress: OnProgress | None = None,
) -> Comparison:
    """Compares two checkpoints, each given as (run, step), step None for the newest. Tensors are matched by name, and of
    per-rank ones rank 0's are compared. ``progress`` is called with the bytes read so far and in all.

    Raises NotFoundError if there is no such run or checkpoint, CorruptError if a file of one is damaged.
    """
    with read(*first) as a, read(*second) as b:
        both = [name for name in a if name in b]
        alike = [name for name in both if _kind(a, name) == _kind(b, name)]
        total = sum(2 * a.structure.by_name[name].spec.nbytes for name in alike)
        done = 0
        changed = []
        for name in alike:
            placed = a.structure.by_name[name]
            change = compare(placed, a[name], b[name])
            if change is not None:
                changed.append(change)
            done += 2 * placed.spec.nbytes
            if progress is not None:
                progress(done, total)
        changed.sort(key=lambda change: (-change.relative, -change.largest, change.name))
        return Comparison(
            first=a.info,
            second=b.info,
            same=len(alike) - len(changed),
            changed=tuple(changed),
            unlike=tuple(Unlike(n, _kind(a, n), _kind(b, n)) for n in both if _kind(a, n) != _kind(b, n)),
            only_first=tuple(name for name in a if name not in b),
            only_second=tuple(name for name in b if name not in a),
        )


def compare(placed: Placed, first: np.ndarray, second: np.ndarray) -> Change | None:
    """Two arrays of the same shape and dtype, as values of a tensor; None if no element differs."""
    a, b = _plain(placed, first), _plain(placed, second)
    differing = nonfinite = 0
    largest = scale = 0.0
    for at in range(0, a.size, _PIECE):
        x, y = a[at : at + _PIECE], b[at : at + _PIECE]
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
            with np.errstate(over="ignore"):  # of the largest doubles: infinite, as it should be
                gap = _most(_wide(y[measured]) - _wide(x[measured]))
            # Whole numbers beyond 2^53 may differ by less than a double can tell.
            largest = max(largest, gap if a.dtype.kind in "fc" else max(gap, 1.0))
    if not differing:
        return None
    if nonfinite:
        largest = relative = math.inf
    else:
        relative = largest / scale if scale else math.inf
    spec = placed.spec
    return Change(spec.name, spec.dtype, spec.shape, a.size, differing, nonfinite, largest, relative)


def _kind(tensors: TensorReader, name: str) -> str:
    spec = tensors.structure.by_name[name].spec
    return f"{spec.dtype} {list(spec.shape)}"


def _plain(placed: Placed, value: np.ndarray) -> np.ndarray:
    """Flat, in a dtype that numpy knows by itself: a bfloat16 is the upper half of a float32."""
    flat = value.reshape(-1)
    if placed.spec.dtype == BFLOAT16:
        return (flat.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)
    return flat


def _wide(values: np.ndarray) -> np.ndarray:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def _most(values: np.ndarray) -> float:
    """The largest magnitude; 0.0 of none."""
    return float(np.abs(values).max()) if values.size else 0.0
