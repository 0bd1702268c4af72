"""Retention in real trainings: rules, metrics of epochs and of loops, what is left when ``fit`` returns."""

from __future__ import annotations

import json

import pytest

import deepfreeze
from deepfreeze.cli.main import main
from deepfreeze.store import Best, Epochs, Latest
from tests.support import trainings

pytestmark = pytest.mark.tensorflow


@pytest.fixture(scope="module")
def keras():
    return pytest.importorskip("keras")


def fit(keras, run, keep, epochs=4, **more):
    """10 steps an epoch, each 3rd one saved."""
    data = trainings.data(10)
    checkpoint = deepfreeze.Checkpoint(run, every=3, keep=keep, local=None, **more)
    trainings.dense(keras).fit(data, epochs=epochs, verbose=0, shuffle=False, callbacks=[checkpoint])
    return checkpoint


def steps(run):
    return [info.step for info in deepfreeze.checkpoints(run)]


def test_fit_leaves_what_its_rules_want(keras, tmp_path, capsys):
    run = tmp_path / "run"
    fit(keras, run, Latest(1) | Epochs(2) | Best("loss", "min", 2))
    assert steps(run) == [18, 30, 40]  # the loss falls
    capsys.readouterr()
    assert main(["ls", str(run), "--json"]) == 0
    found = {one["step"]: one for one in json.loads(capsys.readouterr().out)}
    assert (found[18]["epoch"], found[18]["steps_between"]) == (2, 2) and "epoch 2" in found[18]["reason"]
    assert (found[40]["epoch"], found[40]["steps_between"]) == (4, 0) and "newest" in found[40]["reason"]
    assert set(found[40]["metrics"]) >= {"loss"}


def test_a_checkpoint_of_an_epochs_end_has_that_epochs_metrics(keras, tmp_path, capsys):
    """Show, ls and the library say the same of it, and what they say is Keras's history."""
    run, model = tmp_path / "run", trainings.dense(keras)
    checkpoint = deepfreeze.Checkpoint(run, every="epoch", keep=9, verbose=0)
    history = model.fit(trainings.data(5), epochs=3, verbose=0, shuffle=False, callbacks=[checkpoint])
    loss = dict(enumerate(history.history["loss"], 1))
    infos = deepfreeze.checkpoints(run)
    assert [(one.step, one.epoch, one.metrics["loss"]) for one in infos] == [(5 * n, n, loss[n]) for n in (1, 2, 3)]
    assert deepfreeze.restore(model, run) == deepfreeze.latest(run) == infos[-1]
    assert (infos[-1].metrics, infos[-1].measured) == (deepfreeze.restore(model, run).metrics, 15)
    capsys.readouterr()
    assert main(["ls", str(run), "--json"]) == 0
    assert [one["metrics"] for one in json.loads(capsys.readouterr().out)] == [one.metrics for one in infos]
    assert main(["show", f"{run}@10", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checkpoint"]["metrics"] == infos[1].metrics
    assert main(["show", f"{run}@10"]) == 0
    assert f"epoch 2: loss {loss[2]:.4g}" in capsys.readouterr().out


def test_a_metric_that_is_not_there_is_a_warning_then_an_error(keras, tmp_path):
    """The error comes when all is committed and what goes is removed."""
    with (
        pytest.warns(deepfreeze.CheckpointWarning, match=r"no metric val_loss so far; the metrics there are: .*loss"),
        pytest.raises(deepfreeze.OptionError, match="the metric val_loss; found"),
    ):
        fit(keras, tmp_path / "run", Latest(2) | Best("val_loss", "min"), epochs=2)
    assert steps(tmp_path / "run") == [18, 20]


def test_a_loop_logs_by_itself(keras, tmp_path):
    import numpy as np

    run, model = tmp_path / "run", trainings.dense(keras)
    x, y = next(iter(trainings.data(1)))
    with deepfreeze.capture(
        model.optimizer, model, run, every=2, keep=Latest(1) | Best("score", "max"), local=None, wait_for="external"
    ) as checkpoint:
        for step in range(1, 11):
            model.train_on_batch(x, y)
            assert checkpoint.step()
            if step % 2 == 0:
                checkpoint.log(step, score=np.float32(-abs(step - 4)))
        with pytest.raises(deepfreeze.OptionError, match=r"log\(score=\): expected a number"):
            checkpoint.log(10, score="high")
        with pytest.raises(deepfreeze.OptionError, match=r"log\(step\): expected a whole number"):
            checkpoint.log(-1, score=1.0)
    assert steps(run) == [4, 10]


def test_a_loop_may_log_before_its_first_step_and_not_after_its_last(keras, tmp_path):
    """The values of the step that was restored belong to its checkpoint."""
    run = tmp_path / "run"
    x, y = next(iter(trainings.data(1)))

    def loop(steps, scores):
        model = trainings.dense(keras)
        options = {"every": 2, "keep": Latest(1) | Best("score", "max"), "keep_pending": 0, "local": None}
        with deepfreeze.capture(model.optimizer, model, run, **options) as checkpoint:
            for step, score in scores.items():
                checkpoint.log(step, score=score)
            for _ in range(steps):
                model.train_on_batch(x, y)
                checkpoint.step()
        return checkpoint

    loop(2, {0: 1.0})
    loop(4, {2: 0.5})
    assert steps(run) == [2, 6]
    with pytest.warns(deepfreeze.CheckpointWarning, match="the metrics of step 2, 6 are not kept, because"):
        ended = loop(0, {6: 0.9, 2: 0.1})
    with pytest.raises(deepfreeze.RunError, match=r"log\(\): expected a training that was neither finished nor closed"):
        ended.log(6, score=0.9)


def test_a_loop_that_logs_nothing_for_best_ends_with_an_error(keras, tmp_path):
    run, model = tmp_path / "run", trainings.dense(keras)
    x, y = next(iter(trainings.data(1)))
    with (
        pytest.raises(deepfreeze.OptionError, match=r"the metric score; found no metrics"),
        deepfreeze.capture(model.optimizer, model, run, every=1, keep=Best("score", "max"), local=None) as checkpoint,
    ):
        for _ in range(3):
            model.train_on_batch(x, y)
            checkpoint.step()
    assert steps(run)[-1] == 3
