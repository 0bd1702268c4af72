"""A training captures the same bytes whatever the plan of its capture groups is. The second and third planner stand here."""

import keras
import pytest

import deepfreeze
from deepfreeze.format.tensors import REPLICATED
from deepfreeze.frameworks.tensorflow import framework
from deepfreeze.frameworks.tensorflow.capture import TensorFlowCapture
from deepfreeze.plan.capture_plan import CaptureGroup, Point
from tests.support import kerases, trainings

pytestmark = [pytest.mark.tensorflow, kerases.needs_keras_3]


def one_each(specs):
    """A group for each tensor, captured as early as it may be."""
    return [CaptureGroup((i,), Point.UPDATE if spec.role == REPLICATED else Point.STEP) for i, spec in enumerate(specs)]


def all_at_the_end(specs):
    """One group of all tensors."""
    return [CaptureGroup(tuple(range(len(specs))), Point.STEP)]


def make():
    """Has weights, statistics and a seed."""
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((trainings.FEATURES,)),
            layers.Dense(8, "relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.5),
            layers.Dense(1),
        ]
    )
    model.compile("adam", "mse", jit_compile=False)
    return model


@pytest.mark.parametrize("path", ["auto", pytest.param("graph", marks=pytest.mark.full)])
@pytest.mark.parametrize(("planner", "groups"), [(one_each, None), (all_at_the_end, 1)])
def test_another_plan_captures_the_same_bytes(tmp_path, monkeypatch, planner, groups, path):
    made = []

    def capture(*given, **options):
        made.append(TensorFlowCapture(*given, **options, plan=planner))
        return made[-1]

    monkeypatch.setattr(framework, "TensorFlowCapture", capture)
    x = trainings.data(5)
    trainings.train_undisturbed(keras, make, tmp_path, x)
    model, run = trainings.alike(keras, make), tmp_path / "run"
    checkpoint = deepfreeze.Checkpoint(run, every=2, keep=10, capture=deepfreeze.Capture(path=path))
    model.fit(x, verbose=0, shuffle=False, callbacks=[checkpoint])
    trainings.assert_run_is(run, tmp_path, [2, 4, 5])
    (one,) = made
    assert len(one.groups) == (groups or sum(len(group.variables) for group in one.groups)) and len(one.groups) < 50
