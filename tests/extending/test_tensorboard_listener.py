"""The listener of the guide's page "Extend it": what TensorBoard's file has."""

import numpy as np
import pytest

import deepfreeze
from deepfreeze.events import Blocked, Captured, End, External, Failed, Skipped

pytestmark = pytest.mark.tensorflow


def scalars(folder):
    """Name -> [(step, value)] of all scalars in TensorBoard's files."""
    import tensorflow as tf

    found = {}
    for record in tf.data.TFRecordDataset([str(file) for file in folder.iterdir()]):
        event = tf.compat.v1.Event.FromString(record.numpy())
        for value in event.summary.value:
            assert value.metadata.plugin_data.plugin_name == "scalars"
            found.setdefault(value.tag, []).append((event.step, float(tf.make_ndarray(value.tensor))))
    return found


def rounded(seconds):
    """As TensorBoard keeps them."""
    return [float(value) for value in np.fromiter(seconds, np.float32)]


def test_each_checkpoint_has_its_figures_at_its_own_step(tmp_path):
    from tests.extending.tensorboard_listener import TensorBoardListener

    listener = TensorBoardListener(tmp_path)
    for event in [
        Captured(step=10, nbytes=1),
        Blocked(step=10, seconds=0.25),
        Captured(step=20, nbytes=1),
        Blocked(step=20, seconds=0.5),
        External(step=20, seconds=4.0, written=1.0),
        External(step=10, seconds=6.0, written=1.0),
        Skipped(step=30, why="full"),
        Captured(step=40, nbytes=1),
        Failed(step=40, message="no space", raised=False, reported=True),
        End(finished=True),
    ]:
        listener.on(event)
    assert scalars(tmp_path) == {
        "deepfreeze/blocking_seconds": [(10, 0.25), (20, 0.5)],
        "deepfreeze/commit_seconds": [(20, 4.0), (10, 6.0)],
        "deepfreeze/committed_step": [(10, 0.0), (20, 0.0), (40, 20.0)],
    }


def test_a_training_writes_what_its_stats_say(tmp_path):
    import keras

    from tests.extending.tensorboard_listener import TensorBoardListener
    from tests.support import trainings

    listener = TensorBoardListener(tmp_path / "board")
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=2, wait_for="external", listeners=[listener])
    trainings.dense(keras).fit(trainings.data(6), verbose=0, callbacks=[checkpoint])
    stats, found = checkpoint.stats, scalars(tmp_path / "board")
    assert found["deepfreeze/blocking_seconds"] == [*zip(stats.steps, rounded(stats.blocking), strict=True)]
    assert found["deepfreeze/commit_seconds"] == [*zip(stats.steps, rounded(stats.committed.values()), strict=True)]
    assert found["deepfreeze/committed_step"] == [(2, 0.0), (4, 2.0), (6, 4.0)]
