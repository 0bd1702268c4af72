"""The weights file without its values: Keras's own groups, datasets and attributes at offsets known beforehand.

Built from the probe's template with h5py: contiguous datasets, allocated early, never filled, the large ones on 4 KiB. Then
every rank can write its ranges with plain ``pwrite``, and rank 0 writes the bytes between the tensors once per checkpoint.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

import h5py

from deepfreeze.core.extras import PATH as EXTRA
from deepfreeze.core.layout_probe import Probe
from deepfreeze.core.placement import UNIT, WHOLE_BELOW
from deepfreeze.core.structure import Placed, Structure
from deepfreeze.core.tensors import BFLOAT16, PER_RANK, TensorSpec, numpy_dtype


def build(
    probe: Probe, extra: Sequence[TensorSpec], framework: dict[str, str], state: str
) -> tuple[Structure, list[bytes]]:
    """The structure of the assembled file, and the bytes of each of its gaps (in the order of ``Structure.gaps()``).

    ``extra``: what ranks keep besides, if anything (``core/extras``)."""
    in_file = [slot for slot in probe.slots if slot.spec.role != PER_RANK]
    with tempfile.TemporaryDirectory(prefix="deepfreeze-") as folder:
        template, file = os.path.join(folder, "template.h5"), os.path.join(folder, "skeleton.h5")
        with open(template, "wb") as f:
            f.write(probe.template)
        offsets = _create(template, file, {slot.path: slot.spec for slot in in_file})
        placed = [Placed(slot.spec, slot.path, offsets[slot.path]) for slot in in_file]
        placed.sort(key=lambda p: (p.offset, p.path))
        placed += [Placed(slot.spec, slot.path, 0) for slot in probe.slots if slot.spec.role == PER_RANK]
        placed += [Placed(spec, EXTRA, 0) for spec in extra]
        structure = Structure(tuple(placed), os.path.getsize(file), framework, state, probe.layout)
        with open(file, "rb") as f:
            gaps = [os.pread(f.fileno(), nbytes, offset) for offset, nbytes in structure.gaps()]
    return structure, gaps


def _create(template: str, file: str, specs: dict) -> dict[str, int]:
    """Writes the skeleton; returns each dataset's offset."""
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    # Only tensors that are cut need whole pages of their own.
    access.set_alignment(WHOLE_BELOW, UNIT)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    target = h5py.File(h5py.h5f.create(file.encode(), h5py.h5f.ACC_TRUNC, fapl=access))
    offsets: dict[str, int] = {}

    def copy(path: str, item: h5py.Group | h5py.Dataset) -> None:
        if isinstance(item, h5py.Group):
            made = target.require_group(path)
        else:
            offsets[path] = _dataset(target, path, specs[path])
            made = target[path]
            if specs[path].dtype == BFLOAT16:
                made.attrs["dtype"] = BFLOAT16  # Keras's mark: HDF5 readers may take the type for opaque bytes
        for name, value in item.attrs.items():
            made.attrs[name] = value

    with target, h5py.File(template, "r") as source:
        for name, value in source.attrs.items():
            target.attrs[name] = value
        source.visititems(copy)
    return offsets


def _dataset(target: h5py.File, path: str, spec) -> int:
    create = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    create.set_layout(h5py.h5d.CONTIGUOUS)
    create.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    create.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    create.set_obj_track_times(False)
    space = h5py.h5s.create_simple(spec.shape) if spec.shape else h5py.h5s.create(h5py.h5s.SCALAR)
    parent, _, name = path.rpartition("/")
    group = target[parent] if parent else target
    made = h5py.h5d.create(
        group.id, name.encode(), h5py.h5t.py_create(numpy_dtype(spec.dtype), logical=True), space, create
    )
    return made.get_offset() or 0
