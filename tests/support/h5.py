"""Compares Keras weights files dataset by dataset."""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatch
from pathlib import Path

import h5py
import numpy as np

from deepfreeze.format.dataset_groups import UNTRACKED, is_loss_scale


def datasets(file: Path) -> dict[str, np.ndarray]:
    """Every dataset of an HDF5 file by path."""
    found: dict[str, np.ndarray] = {}
    with h5py.File(file, "r") as f:
        f.visititems(lambda path, item: found.update({path: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


def assert_same(file: Path, expected: Path, apart_from: str | None = None, more: Collection[str] = ()) -> None:
    """Asserts that both files have the same datasets, with the same dtypes, shapes and bits; the group ``apart_from`` may differ in
    bits. ``more``: a pattern of the name of each variable that ``file`` has besides, in the group of those that Keras leaves out; it may
    also have loss scales."""
    left, right = datasets(file), datasets(expected)
    besides = {path for path in left.keys() - right.keys() if not is_loss_scale(path)}
    assert right.keys() <= left.keys() and len(besides) == len(more), (right.keys() - left.keys(), besides)
    assert all(any(fnmatch(path, f"{UNTRACKED}/{name}") for path in besides) for name in more), besides
    differing = [p for p in right if left[p].dtype != right[p].dtype or left[p].shape != right[p].shape]
    differing += [p for p in right if p not in differing and left[p].tobytes() != right[p].tobytes()]
    if apart_from:
        differing = [p for p in differing if not p.startswith(f"{apart_from}/")]
    assert not differing, f"{file} differs from {expected} in {differing}"
