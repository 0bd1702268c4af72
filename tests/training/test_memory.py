"""``memory=``: captures hold no more bytes on a rank than they may, at any moment, and lose nothing by it."""

import tempfile
from pathlib import Path

import keras
import pytest

import deepfreeze
from benchmarks.capture_memory import sampled
from deepfreeze.errors import OptionError
from tests.support import trainings

pytestmark = pytest.mark.tensorflow

ENGINE = deepfreeze.Engine(writers=2, chunk_bytes=1 << 20)
BLOCKS = 2 << 20
SHARD = 28_900_000  # bytes of a capture, and little more


def make(units=300_000):
    return trainings.dense(keras, units=units)


def train(run, batches, **options):
    checkpoint = deepfreeze.Checkpoint(run, **{"every": 1, "verbose": 0, "engine": ENGINE, "keep": 100, **options})
    make().fit(trainings.data(batches), verbose=0, shuffle=False, callbacks=[checkpoint])
    return checkpoint


@pytest.fixture
def in_memory():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    ("local", "shards"),
    [
        ("none", 1),
        ("memory", 3),
        *(
            pytest.param(local, shards, marks=pytest.mark.full)
            for local, shards in (("none", 3), ("disk", 1), ("disk", 1.9), ("disk", 3), ("memory", 1.9), ("memory", 2))
        ),
    ],
)
def test_captures_never_hold_more_than_the_memory_given(local, shards, tmp_path, in_memory):
    """With the first capture, which lies in the area's own memory. Slots in memory are used only where two captures fit."""
    (tmp_path / "slots").mkdir()
    folder = {"none": None, "disk": tmp_path / "slots", "memory": in_memory}[local]
    limit = int(shards * SHARD) + BLOCKS
    told = []
    with sampled(in_memory) as samples:
        checkpoint = train(tmp_path / "run", 10, memory=f"{limit / 1e6} MB", local=folder, listeners=[told.append])
    without = any("memory= holds one capture" in str(event) for event in told)
    assert without == (local == "memory" and shards < 2)
    assert checkpoint.stats.commits == 10 and samples.number > 5
    assert 0.9 * SHARD < samples.most <= limit


@pytest.mark.parametrize("when", ["update", pytest.param("late", marks=pytest.mark.full)])
def test_every_step_is_saved_bit_for_bit_in_a_memory_for_one_capture(when, tmp_path):
    """Each capture takes the memory of the last one, part by part while that is being written."""
    trainings.train_undisturbed(keras, make, tmp_path, trainings.data(5))
    train(tmp_path / "run", 5, memory=SHARD + BLOCKS, local=None, capture=deepfreeze.Capture(when=when))
    trainings.assert_run_is(tmp_path / "run", tmp_path, [1, 2, 3, 4, 5])


def test_too_little_memory_is_an_error_that_names_the_least(tmp_path):
    with pytest.raises(
        OptionError, match=r"memory=: expected at least \d+ bytes on this rank: \d+ for its shard"
    ) as caught:
        train(tmp_path / "run", 2, memory=SHARD)
    least = int(str(caught.value).split("at least ")[1].split(" bytes")[0])
    assert SHARD + BLOCKS - 100_000 < least < SHARD + BLOCKS
    assert train(tmp_path / "run", 2, memory=least).stats.commits == 2
    graph = deepfreeze.Capture(path="graph")
    with pytest.raises(OptionError, match="each of two shards, because captures lie in TensorFlow's memory"):
        train(tmp_path / "other", 2, memory=least, capture=graph)
    for wrong in ("much", "1.5 XB", 0, True, -1, 2.5):
        with pytest.raises(OptionError, match="memory=: expected a number of bytes"):
            deepfreeze.Checkpoint(tmp_path, memory=wrong)
    for count in ("in_flight", "slots"):
        with pytest.raises(OptionError, match=rf"memory= and Engine\({count}=\): expected one of the two"):
            deepfreeze.Checkpoint(tmp_path, memory="1 GB", engine=deepfreeze.Engine(**{count: 2}))
