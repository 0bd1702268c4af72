"""Ranks that have not built the same model are told so, all of them alike: which rank, which variable, both shapes."""

import types

import numpy as np
import pytest

from deepfreeze.errors import StructureError
from deepfreeze.ranks.same_model import require_same_model
from deepfreeze.state.training_state import TrainingState
from tests.support.refusals import assert_four_parts
from tests.support.stand_in import Model
from tests.support.threads import run


def variable(name, *shape, dtype="float32"):
    return types.SimpleNamespace(path=name, shape=shape, dtype=np.dtype(dtype))


class Sgd:
    """As an optimizer looks from outside."""

    def __init__(self, *variables):
        self.variables = list(variables)
        self.iterations, self.apply_gradients = None, None


class Adam(Sgd):
    """Another one."""


def model(*weights, optimizer=None):
    """The description of a stand-in model's state."""
    trained = [weight for weight in weights if "seed" not in weight.path]
    made = Model(variables=list(weights), trainable_variables=trained)
    made.optimizer = optimizer if optimizer is not None else Sgd(variable("iteration", dtype="int64"))
    return TrainingState.of(made).description()


def ask(*models):
    return run(len(models), lambda world: require_same_model(world, models[world.rank]))


KERNEL, BIAS = variable("dense/kernel", 4, 8), variable("dense/bias", 8)


def test_models_that_are_alike_may_have_other_names_seeds_and_metrics():
    other = model(
        variable("dense_2/kernel", 4, 8), variable("dense_2/bias", 8), variable("drop/seed_generator_state", 2)
    )
    assert ask(model(KERNEL, BIAS), other, model(KERNEL, BIAS)) == [None, None, None]


@pytest.mark.parametrize(
    ("other", "expected", "found", "count"),
    [
        (model(variable("dense/kernel", 4, 9), variable("dense/bias", 9)), "(4, 8)", "(4, 9)", 2),
        (model(KERNEL, variable("dense/bias", 8, dtype="float64")), "dense/bias, float32", "dense/bias, float64", 1),
        (model(KERNEL, BIAS, variable("new/kernel", 3)), "optimizer Sgd", "new/kernel, float32 of shape (3,)", 3),
        (model(KERNEL), "dense/bias, float32 of shape (8,)", "optimizer Sgd", 3),
        (
            model(KERNEL, BIAS, optimizer=Adam(variable("iteration", dtype="int64"))),
            "optimizer Sgd",
            "optimizer Adam",
            1,
        ),
        (model(KERNEL, BIAS, optimizer=Sgd()), "iteration, int64 of shape ()", "nothing", 1),
    ],
)
def test_the_first_difference_is_named_on_every_rank(other, expected, found, count):
    same = model(KERNEL, BIAS)
    for errors, rank in (ask(same, same, other), 2), (ask(same, other, other), 1):
        assert len({str(error) for error in errors}) == 1 and all(isinstance(e, StructureError) for e in errors)
        assert_four_parts(errors[0], where=f"rank {rank}", expected=expected, found=found, todo="on every rank")
        assert f"({count} differ)" in errors[0].found


def test_names_count_where_they_are_asked_for():
    other = model(variable("dense_2/kernel", 4, 8), variable("dense_2/bias", 8))
    models = (model(KERNEL, BIAS), other)
    errors = run(2, lambda world: require_same_model(world, models[world.rank], named=True))
    for error in errors:
        found, todo = "dense_2/kernel, float32 of shape (4, 8) in its place (2 differ)", "give the layers names"
        assert_four_parts(error, where="rank 1", expected="which has dense/kernel, float32", found=found, todo=todo)
    assert run(2, lambda world: require_same_model(world, models[0], named=True)) == [None, None]


def test_one_rank_is_like_itself():
    assert ask(model(KERNEL)) == [None]
