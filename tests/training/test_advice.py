"""Warnings of a job whose ranks do not train together, although they were probably meant to."""

import types

import keras
import pytest

import deepfreeze
from deepfreeze.frameworks.tensorflow.averaging import line_to_average
from deepfreeze.training import advice
from tests.support import kerases, trainings

pytestmark = pytest.mark.tensorflow


def told(caplog):
    return [record.message for record in caplog.records if record.levelname == "WARNING"]


def test_a_process_of_several_that_trains_alone_is_told_once(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    for run, world in (("meant", "alone"), ("one", None), ("two", None)):
        deepfreeze.Checkpoint(tmp_path / run, world=world).open(trainings.dense(keras))
        if world == "alone":
            assert told(caplog) == []
    (message,) = told(caplog)
    assert message.startswith("OMPI_COMM_WORLD_SIZE says that 4 processes were started, but this one trains alone. ")
    assert "horovod.tensorflow.init()" in message and 'world="alone"' in message


def test_a_process_that_was_launched_by_itself_is_told_nothing(tmp_path, caplog):
    deepfreeze.Checkpoint(tmp_path / "run").open(trainings.dense(keras))
    assert told(caplog) == []


def test_an_optimizer_of_keras_alone_averages_nothing(api):
    model = trainings.dense(api, "sgd")
    wrapper = "horovod.tensorflow.keras" if kerases.is_2(api) else "deepfreeze"
    assert line_to_average(model, model.optimizer) == f"{wrapper}.DistributedOptimizer(optimizer)"
    scaled = types.SimpleNamespace(inner_optimizer=model.optimizer)
    assert line_to_average(model, scaled) is None


def test_code_of_the_users_own_may_average(api):
    class Own(api.Sequential):
        def train_step(self, data):
            return super().train_step(data)

    class OwnOptimizer(api.optimizers.SGD):
        pass

    model = trainings.dense(api, OwnOptimizer())
    assert line_to_average(model, model.optimizer) is None
    own = trainings.dense(api, "sgd", cls=Own)
    assert line_to_average(own, own.optimizer) is None
    averaging = api.optimizers.SGD()
    averaging.averages_gradients = True
    assert line_to_average(trainings.dense(api), averaging) is None


@pytest.mark.parametrize(
    ("size", "rank", "in_graph", "number"), [(2, 0, True, 1), (2, 1, True, 0), (1, 0, True, 0), (2, 0, False, 0)]
)
def test_rank_0_of_several_horovod_ranks_warns(size, rank, in_graph, number):
    world, heard = types.SimpleNamespace(size=size, rank=rank, in_graph=in_graph), []
    model = trainings.dense(keras, "sgd")
    for _ in range(2):
        advice.warn_of_no_average(world, model, model.optimizer, lambda level, message: heard.append((level, message)))
    assert len(heard) == number
    for level, message in heard:
        assert level == "warning" and message.startswith(
            "Horovod has 2 ranks, but SGD does not average their gradients"
        )
