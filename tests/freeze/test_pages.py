"""No two ranks write bytes of one page of the file, whatever the model and however many ranks there are."""

from __future__ import annotations

import numpy as np
import pytest

from deepfreeze.core.keras_model import framework_of, tf_variable
from deepfreeze.core.layout_probe import probe_file
from deepfreeze.core.placement import PLACEMENTS
from deepfreeze.freeze import skeleton
from deepfreeze.freeze.capture import Capture
from deepfreeze.freeze.graph_buffers import GraphBuffers
from deepfreeze.freeze.handoff import Regions, whole_pages

pytestmark = pytest.mark.tensorflow

PAGE = 4096


@pytest.fixture(scope="module")
def model():
    keras = pytest.importorskip("keras")
    made = keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10)
    made.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
    made.optimizer.build(made.trainable_variables)
    return made


@pytest.fixture(scope="module")
def laid_out(model):
    """The file's structure and head, and the specs that the ranks' placement is given, with each one's place in the file."""
    probe = probe_file(model)
    order = Capture(model, "full", 0, 1, PLACEMENTS["per_layer"], GraphBuffers(), None).order
    structure, head = skeleton.build(probe, order, [], framework_of(model), "full")
    slots = {id(tf_variable(slot.variable)): slot for slot in probe.slots}
    offsets = {placed.path: placed.offset for placed in structure.tensors}
    return structure, head, [(slots[i].spec, offsets[slots[i].path]) for i in order]


@pytest.mark.parametrize("world", [1, 2, 3, 64])
@pytest.mark.parametrize("place", PLACEMENTS)
def test_every_page_of_resnet_50_has_one_writer_and_so_has_every_byte(laid_out, place, world):
    structure, head, tensors = laid_out
    owner, written = np.full(-(-structure.file_size // PAGE), -1), 0
    for rank, shards in enumerate(PLACEMENTS[place]([spec for spec, _ in tensors], world)):
        rows = sorted((tensors[s.tensor][1] + s.start, s.nbytes) for s in shards)
        offsets, sizes = np.array(rows, np.int64).reshape(-1, 2).T
        nowhere = np.zeros(len(rows), np.int64)
        mine = Regions(nowhere, nowhere, sizes, offsets)
        regions, _ = whole_pages(mine, 1, head if rank == 0 else b"", structure.file_size)
        assert (np.diff(regions.file_offset) >= regions.nbytes[:-1]).all(), "sorted, and not overlapping"
        for offset, nbytes in zip(regions.file_offset.tolist(), regions.nbytes.tolist(), strict=True):
            pages = owner[offset // PAGE : -(-(offset + nbytes) // PAGE)]
            assert ((pages == -1) | (pages == rank)).all(), (
                f"rank {rank} writes to another rank's page at byte {offset}"
            )
            pages[:] = rank
        written += int(regions.nbytes.sum())
    assert (owner >= 0).all() and written == structure.file_size


def test_padding_and_metadata_are_a_small_part_of_resnet_50(laid_out):
    structure, _, _ = laid_out
    assert structure.file_size < 1.02 * sum(placed.nbytes for placed in structure.tensors)
