"""Where TensorFlow lacks what the engine's op needs, TensorFlow's own ops capture, and the log says why."""

import keras
import pytest

import veloc_bindings
from deepfreeze.frameworks.tensorflow import engine_buffers
from tests.support import trainings
from veloc_bindings import EngineFault

pytestmark = pytest.mark.tensorflow

REASON = "this TensorFlow has no TF_NewOpDefinitionBuilder"


@pytest.mark.parametrize("per_execution", [1, 2])
def test_a_tensorflow_without_the_op_s_functions_captures_by_its_own_ops(per_execution, tmp_path, monkeypatch, caplog):
    def lacks():
        raise EngineFault(veloc_bindings.INVALID, REASON)

    monkeypatch.setattr(veloc_bindings, "register_tensorflow", lacks)
    assert REASON in str(engine_buffers.reason_against())
    with caplog.at_level("INFO", "deepfreeze"):
        steps = trainings.assert_as_keras_saves_it(
            keras,
            lambda: trainings.dense(keras, steps_per_execution=per_execution),
            tmp_path,
            trainings.data(6),
            every=per_execution,
        )
    assert steps == list(range(per_execution, 7, per_execution))
    assert f"capturing by TensorFlow's own ops: {REASON}" in caplog.text


def test_this_tensorflow_has_them():
    """Not so, all of these tests would pass without the op."""
    assert engine_buffers.reason_against() is None
