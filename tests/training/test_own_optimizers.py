"""Models whose ``train_step`` decides what their optimizers train: a distiller, GANs that keep their optimizers in containers."""

import warnings

import numpy as np
import pytest

import deepfreeze
from deepfreeze.state.keras_objects import optimizer_variables
from deepfreeze.state.training_state import METRIC, TrainingState
from tests.support import h5, kerases, own_steps, trainings

pytestmark = pytest.mark.tensorflow

PROGRAMS = own_steps.DISTILLERS | own_steps.GANS


def programs(keras):
    return [name for name in PROGRAMS if not (kerases.is_2(keras) and name == "accumulating")]


def made(keras, kind):
    if kerases.is_2(keras) and kind == "accumulating":
        pytest.skip("Keras 2 has no gradient_accumulation_steps")
    return trainings.alike(keras, lambda: PROGRAMS[kind](keras))


def fit(model, data, run=None, *callbacks, **options):
    if run is not None:
        callbacks = (deepfreeze.Checkpoint(run, verbose=0, **own_steps.counting(model), **options), *callbacks)
    return model.fit(data, verbose=0, shuffle=False, callbacks=list(callbacks))


def values(model):
    return [np.asarray(t.variable).tobytes() for t in TrainingState.of(model).tensors if t.kind != METRIC]


@kerases.cases(PROGRAMS, both=["distiller"], often=["in_list"], name="kind")
def test_a_model_that_trains_itself_is_saved_as_keras_saves_it(keras, kind, tmp_path):
    """Each checkpoint has the datasets of stock ``save_weights``, no slot more: those for the variables that the step trains."""
    model, stock = made(keras, kind), made(keras, kind)
    fit(stock, trainings.data(4), None, trainings.save_weights(keras, tmp_path, own_steps.counting(stock).get("optimizer")))
    fit(model, trainings.data(4), tmp_path / "run", every=1, keep=9)
    trainings.assert_run_is(tmp_path / "run", tmp_path, trainings.stock_steps(tmp_path))


@kerases.cases(PROGRAMS, often=["distiller", "in_dict"], name="kind")
def test_a_model_that_trains_itself_resumes_bit_for_bit(keras, kind, tmp_path):
    data, run = trainings.data(8), tmp_path / "run"
    whole, first, second = (made(keras, kind) for _ in range(3))
    fit(whole, data)
    fit(first, data.take(4), run)
    fit(second, data.skip(4), run)
    assert values(second) == values(whole) and len(deepfreeze.checkpoints(run)) == 2
