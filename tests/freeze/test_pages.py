"""No two ranks write bytes of one page of the file, whatever the model and however many ranks there are."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from deepfreeze.freeze import skeleton
from deepfreeze.freeze.regions import Regions
from deepfreeze.plan.placement import PLACEMENTS
from deepfreeze.state.dataset_paths import locate
from deepfreeze.state.keras_objects import framework_of
from deepfreeze.state.training_state import TrainingState

pytestmark = pytest.mark.tensorflow

PAGE = 4096


@pytest.fixture(scope="module")
def model():
    made = keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10)
    made.compile(keras.optimizers.SGD(0.01, momentum=0.9), "sparse_categorical_crossentropy")
    made.optimizer.build(made.trainable_variables)
    return made


@pytest.fixture(scope="module")
def laid_out(model):
    """The file's structure and head, and the specs that the ranks' placement is given, with each one's place in the file."""
    state = TrainingState.of(model)
    located = locate(state)
    structure, head = skeleton.build(state, located, framework_of(model))
    tensors = {id(tensor.variable): tensor for tensor in located.tensors}
    offsets = {placed.path: placed.offset for placed in structure.tensors}
    return structure, head, [(one.spec, offsets[tensors[id(one.variable)].path]) for one in state.placed()]


@pytest.mark.parametrize("world", [1, 2, 3, 64])
@pytest.mark.parametrize("place", PLACEMENTS)
def test_every_page_of_resnet_50_has_one_writer_and_so_has_every_byte(laid_out, place, world):
    structure, head, tensors = laid_out
    owner, written = np.full(-(-structure.file_size // PAGE), -1), 0
    for rank, shards in enumerate(PLACEMENTS[place]([spec for spec, _ in tensors], world)):
        rows = sorted((tensors[s.tensor][1] + s.start, s.nbytes) for s in shards)
        offsets, sizes = np.array(rows, np.int64).reshape(-1, 2).T
        mine = Regions.of_pieces(np.arange(len(rows)), sizes, offsets)
        regions = mine.whole_pages(head if rank == 0 else b"", structure.file_size)
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
