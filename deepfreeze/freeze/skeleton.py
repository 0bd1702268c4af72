"""The skeleton of the model file: Keras's own groups, datasets and attributes, with a known offset for each dataset and without values.

h5py builds it from the template of ``state/dataset_paths``, with contiguous datasets that are never filled. HDF5's metadata lies at the
file's head. Behind the head every tensor begins a page of 4 KiB, in the order in which the placement deals the tensors out. So every
rank can write whole pages by plain ``pwrite``, without HDF5, and rank 0 writes the head once per checkpoint. The first large tensor begins
at a multiple of the placement's granule, so that the ranks' shares can be cut where the store's granules end. The gap before it is the
only one in the file; the first ranks write its zeros together.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from deepfreeze.errors import StructureError
from deepfreeze.format.structure import Placed, Structure
from deepfreeze.format.tensors import BFLOAT16, PER_RANK, TensorSpec, numpy_dtype
from deepfreeze.plan.placement import UNIT, first_large, in_file_order, pages
from deepfreeze.state.dataset_paths import LocatedState
from deepfreeze.state.training_state import TrainingState


@dataclass(frozen=True)
class Skeleton:
    """A model file without values. ``structure``: where each tensor is; ``head``: the bytes before the first tensor, in whole pages;
    ``gap``: (offset, bytes) of the pages before the first large tensor that belong to no tensor."""

    structure: Structure
    head: bytes
    gap: tuple[int, int]


def build(
    state: TrainingState,
    located: LocatedState,
    framework: dict[str, str],
    granule: int = UNIT,
    values: Mapping[str, Any] | None = None,
) -> Skeleton:
    """The skeleton of the model file.

    ``located``: the dataset of each variable, and the template; ``framework``: the result of ``framework_of(model)``; ``granule``: bytes,
    at a multiple of which the first large tensor begins; ``values``: the structure's named values.
    ``StructureError`` if HDF5 has given a dataset another place than the one that the placement counts on."""
    order = {id(tensor.variable): n for n, tensor in enumerate(state.tensors)}
    in_file = [tensor for tensor in located.tensors if tensor.spec.role != PER_RANK]
    in_file.sort(key=lambda tensor: (order[id(tensor.variable)], tensor.path))
    specs = {tensor.path: tensor.spec for tensor in in_file}
    ordered = [tensor.spec for tensor in in_file]
    allocated = [in_file[i].path for i in in_file_order(ordered)]
    large = first_large(ordered)
    begins = {} if large is None else {in_file[large].path: granule}
    with tempfile.TemporaryDirectory(prefix="deepfreeze-") as folder:
        template, file = os.path.join(folder, "template.h5"), os.path.join(folder, "skeleton.h5")
        with open(template, "wb") as f:
            f.write(located.template)
        _create(template, file, specs)
        head = pages(os.path.getsize(file)) * UNIT
        offsets = _allocate(file, allocated, begins)
        gap = _require_offsets(offsets, specs, head, begins)
        placed = [Placed(tensor.spec, tensor.path, offsets.get(tensor.path, 0)) for tensor in in_file]
        placed.sort(key=lambda p: (p.offset, p.path))
        placed += [Placed(one.spec, one.path, 0) for one in located.tensors if one.spec.role == PER_RANK]
        size = os.path.getsize(file)
        with open(file, "rb") as f:
            structure = Structure(tuple(placed), size, framework, state.what, located.layout, values or {})
            return Skeleton(structure, f.read(min(head, size)), gap)


def _create(template: str, file: str, specs: Mapping[str, TensorSpec]) -> None:
    """Writes all groups, datasets and attributes to ``file``. HDF5 gives the datasets no place in it yet. ``specs``: by dataset."""
    target = h5py.File(file, "w")

    def copy(path: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Group):
            made = target.require_group(path)
        else:
            _dataset(target, path, specs[path])
            made = target[path]
            if specs[path].dtype == BFLOAT16:
                made.attrs["dtype"] = BFLOAT16  # so does Keras: HDF5 has no such type, and readers may see opaque bytes
        for name, value in item.attrs.items():
            made.attrs[name] = value

    with target, h5py.File(template, "r") as source:
        for name, value in source.attrs.items():
            target.attrs[name] = value
        source.visititems(copy)


def _dataset(target: h5py.File, path: str, spec: TensorSpec) -> None:
    create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    create.set_layout(h5py.h5d.CONTIGUOUS)
    create.set_alloc_time(h5py.h5d.ALLOC_TIME_LATE)
    create.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    create.set_obj_track_times(False)
    space = h5py.h5s.create_simple(spec.shape) if spec.shape else h5py.h5s.create(h5py.h5s.SCALAR)
    parent, _, name = path.rpartition("/")
    group = target[parent] if parent else target
    h5py.h5d.create(group.id, name.encode(), h5py.h5t.py_create(numpy_dtype(spec.dtype), logical=True), space, create)


def _allocate(file: str, paths: Sequence[str], begins: Mapping[str, int]) -> dict[str, int]:
    """Gives the datasets ``paths`` their places in ``file``, in this order, each from the beginning of a page, or from a multiple of
    ``begins[path]`` bytes. Returns the offset in bytes of each."""
    offsets: dict[str, int] = {}
    # The alignment is the open file's. What HDF5 has left free before an aligned place is forgotten when the file is closed.
    for alignment, group in itertools.groupby(paths, lambda path: begins.get(path, UNIT)):
        access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
        access.set_alignment(1, alignment)
        access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
        with h5py.File(h5py.h5f.open(file.encode(), h5py.h5f.ACC_RDWR, fapl=access)) as target:
            for path in group:
                dataset = target[path].id
                # HDF5 gives a contiguous dataset all of its room when its first element is written.
                kind, chosen = dataset.get_type(), dataset.get_space()
                if chosen.get_simple_extent_ndims():
                    chosen.select_hyperslab((0,) * len(dataset.shape), (1,) * len(dataset.shape))
                dataset.write(h5py.h5s.create_simple((1,)), chosen, np.zeros(kind.get_size(), np.uint8), kind)
                offsets[path] = dataset.get_offset()
    return offsets


def _require_offsets(
    offsets: Mapping[str, int], specs: Mapping[str, TensorSpec], head: int, begins: Mapping[str, int]
) -> tuple[int, int]:
    """``StructureError`` unless each dataset begins where the pages of the one before end, or at the next multiple of ``begins[path]``.
    Otherwise two ranks would write to one page, or a rank over HDF5's metadata. ``head``: bytes of the head, in whole pages. Returns the
    gap: (offset, bytes)."""
    expected, gap = head, (head, 0)
    for path, offset in offsets.items():
        if path in begins:
            gap = expected, -expected % begins[path]
            expected += gap[1]
        if offset != expected:
            raise StructureError(
                where=f"dataset {path} of the model's weights file",
                expected=f"a place at byte {expected}, where a page begins",
                found=f"byte {offset}",
                todo=f"use another version of h5py: {h5py.__version__} with HDF5 {h5py.version.hdf5_version} lays files out "
                "in an unknown way",
            )
        expected = offset + pages(specs[path].nbytes) * UNIT
    return gap
