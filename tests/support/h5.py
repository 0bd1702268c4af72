"""Compares Keras weights files dataset by dataset."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from deepfreeze.format.dataset_groups import is_loss_scale


def datasets(file: Path) -> dict[str, np.ndarray]:
    """Every dataset of an HDF5 file by path."""
    found: dict[str, np.ndarray] = {}
    with h5py.File(file, "r") as f:
        f.visititems(lambda path, item: found.update({path: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found


def assert_same(file: Path, expected: Path, apart_from: str | None = None) -> None:
    """Asserts that both files have the same datasets, with the same dtypes, shapes and bits; the group ``apart_from`` may differ in
    bits, and ``file`` may have loss scales that Keras 2 does not save."""
    left, right = datasets(file), datasets(expected)
    left = {path: value for path, value in left.items() if path in right or not is_loss_scale(path)}
    assert left.keys() == right.keys()
    differing = [p for p in left if left[p].dtype != right[p].dtype or left[p].shape != right[p].shape]
    differing += [p for p in left if p not in differing and left[p].tobytes() != right[p].tobytes()]
    if apart_from:
        differing = [p for p in differing if not p.startswith(f"{apart_from}/")]
    assert not differing, f"{file} differs from {expected} in {differing}"
