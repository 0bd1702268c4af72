"""No two ranks write bytes of one page of the file, whatever the model and however many ranks there are."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from deepfreeze.freeze import skeleton
from deepfreeze.freeze.regions import Regions, part_of_gap
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


@pytest.fixture(scope="module", params=[PAGE, 1 << 20], ids=["pages", "stripes"])
def laid_out(model, request):
    """The file's skeleton, the specs that the ranks' placement is given, with each one's place in the file, and the granule."""
    state = TrainingState.of(model)
    located = locate(state)
    built = skeleton.build(state, located, framework_of(model), request.param)
    tensors = {id(tensor.variable): tensor for tensor in located.tensors}
    offsets = {placed.path: placed.offset for placed in built.structure.tensors}
    return built, [(one.spec, offsets[tensors[id(one.variable)].path]) for one in state.placed()], request.param


@pytest.mark.parametrize("world", [1, 2, 3, 64])
@pytest.mark.parametrize("place", PLACEMENTS)
def test_every_page_of_resnet_50_has_one_writer_and_so_has_every_byte(laid_out, place, world):
    built, tensors, granule = laid_out
    structure = built.structure
    owner, written = np.full(-(-structure.file_size // PAGE), -1), 0
    for rank, shards in enumerate(PLACEMENTS[place]([spec for spec, _ in tensors], world, granule)):
        rows = sorted((tensors[s.tensor][1] + s.start, s.nbytes) for s in shards)
        offsets, sizes = np.array(rows, np.int64).reshape(-1, 2).T
        mine = Regions.of_pieces(np.arange(len(rows)), sizes, offsets)
        gap = part_of_gap(built.gap, rank, world)
        regions = mine.whole_pages(built.head if rank == 0 else b"", structure.file_size, gap)
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
    structure = laid_out[0].structure
    assert structure.file_size < 1.02 * sum(placed.nbytes for placed in structure.tensors)


@pytest.mark.parametrize("world", [8, 16])
def test_few_stripes_of_resnet_50_have_bytes_of_two_ranks(laid_out, world):
    """Of stripes of 1 MiB, where a rank has at least 8 of them: counted in the file as it is laid out, with the statistics."""
    built, tensors, granule = laid_out
    stripe, ranks = 1 << 20, {}
    for rank, shards in enumerate(PLACEMENTS["per_layer"]([spec for spec, _ in tensors], world, granule)):
        for begin, end in [(tensors[s.tensor][1] + s.start, tensors[s.tensor][1] + s.stop) for s in shards]:
            for number in range(begin // stripe, (end - 1) // stripe + 1):
                ranks.setdefault(number, set()).add(rank)
    shared = sum(len(found) > 1 for found in ranks.values())
    assert len(ranks) == 182
    assert shared <= 5 if granule == stripe else shared >= 150
    large = built.gap[0] + built.gap[1]
    assert large % granule == 0 and large in [offset for _, offset in tensors] and built.gap[1] < granule
