"""Horovod ranks whose captures are late save what they held."""

import importlib

import numpy as np
import pytest

import deepfreeze
from deepfreeze.inspect.verify import verify
from tests.horovod.test_ranks import assert_is, held, is_statistic
from tests.support import h5, kerases, trainings
from tests.support.horovod import horovod
from tests.support.private import read_private

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]


def train(job, folder, api, when="late", **training):
    """Trains five updates twice: stock Keras saves each step of the first training on each rank, and the second has checkpoints. At least
    one of these is left to the next step."""
    job.run("stock_ranks", api=api, folder=folder, steps=5, **training)
    told = job.run("ranks", api=api, folder=folder, steps=5, every=2, when=when, keep=9, **training)
    assert [info.step for info in deepfreeze.checkpoints(folder / "run")] == [2, 4, 5] and verify(folder / "run").ok
    assert all(stats["late"] == ([2, 4] if when == "late" else stats["late"]) for stats in told)


def assert_as_ranks_save_it(folder, ranks, counted=1):
    """The checkpoints are what stock Keras saves on rank 0 without DeepFreeze. Weights and slots are equal on all ranks, which have seeds
    of their own. ``counted``: how many steps Keras counts for each update."""
    for step in (2, 4, 5):
        checkpoint, stocks_name = (
            folder / "run" / f"step-{step:010d}" / "model.weights.h5",
            f"{step * counted}.weights.h5",
        )
        h5.assert_same(checkpoint, folder / "stock-0" / stocks_name)
        file = h5.datasets(checkpoint)
        for rank in range(ranks):
            stock = folder / f"stock-{rank}"
            for path, array in h5.datasets(stock / stocks_name).items():
                if path.startswith(("layers", "optimizer")) and not is_statistic(path):
                    assert array.tobytes() == file[path].tobytes(), f"step {step}, rank {rank}: {path}"
            with np.load(stock / f"{step}.npz") as seeds:
                own = read_private(folder / "run", step, rank).values()
                assert [seed.tolist() for seed in own] == [seed.tolist() for seed in seeds.values()]


@pytest.mark.parametrize(
    ("api", "when"),
    [
        ("keras", "late"),
        pytest.param("keras", "auto", marks=pytest.mark.full),
        *(pytest.param(name, "late", marks=pytest.mark.full) for name in kerases.NAMES[1:]),
    ],
)
def test_two_ranks_save_what_they_held_before_the_next_step(two, tmp_path, api, when):
    """Each checkpoint is what stock Keras and Horovod hold after that step, in a training without DeepFreeze's callback."""
    train(two, tmp_path, api, when)
    assert_as_ranks_save_it(tmp_path, 2)
    assert_is(tmp_path / "run", 5, [held(tmp_path, 0), held(tmp_path, 1)])


# Each with batches for each update. Seeds and dropout, loops in the graph, attention, gradients that are one; accumulation.
WAYS = {"dense": 1, "lstm": 1, "attention": 1, "branches": 1, "accumulates": 2}


@pytest.mark.full
@pytest.mark.parametrize("api", kerases.NAMES)
@pytest.mark.parametrize("way", WAYS)
def test_late_checkpoints_of_two_ranks_are_what_stock_keras_saves(two, tmp_path, api, way):
    train(two, tmp_path, api, kind="conv" if way == "accumulates" else way, passes=WAYS[way])
    # Of Keras 2's optimizers Horovod counts every batch.
    assert_as_ranks_save_it(tmp_path, 2, WAYS[way] if kerases.is_2(importlib.import_module(api)) else 1)


@pytest.mark.full
@pytest.mark.parametrize("api", kerases.NAMES)
def test_late_checkpoints_beside_an_update_that_all_ranks_skip(two, api, tmp_path):
    """Rank 1's third batch overflows: it comes when what step 2 has left is copied, and its update is skipped on both ranks."""
    two.run("half", api=api, folder=tmp_path, every=2, when="late")
    last = 6 if kerases.is_2(importlib.import_module(api)) else 5
    assert trainings.stock_steps(tmp_path) == [*range(1, last + 1)]
    trainings.assert_run_is(tmp_path / "run", tmp_path, sorted({2, 4, last}))


@pytest.mark.full
@pytest.mark.parametrize("api", kerases.NAMES)
def test_three_ranks_save_what_they_held_before_the_next_step(tmp_path, api):
    # With tensors averaged together, which depends on timing, the order of three addends would be another in each training.
    with horovod(3, HOROVOD_FUSION_THRESHOLD="0") as three:
        train(three, tmp_path, api)
    assert_as_ranks_save_it(tmp_path, 3)
    assert_is(tmp_path / "run", 5, [held(tmp_path, rank) for rank in range(3)])
