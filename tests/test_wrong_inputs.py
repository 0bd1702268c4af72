"""Places, times and models that are not as they should be: a clear error (where, expected, found, what to do), nothing lost, nothing
changed; or no error at all. What single modules refuse is tested beside them."""

import errno
import os
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

import deepfreeze
from deepfreeze.core import names
from tests.support import trainings


def train(run, steps=4, model=None, **options):
    checkpoint = deepfreeze.Checkpoint(run, **{"every": 2, **options})
    model = model or trainings.dense(keras)
    model.fit(trainings.data(steps), verbose=0, shuffle=False, callbacks=[checkpoint])
    return checkpoint


def parts(error):
    """A message's four parts."""
    found = re.fullmatch(r"(.+?): expected (.+?); found (.+)\. ([A-Z].+)\.", str(error), re.DOTALL)
    assert found, str(error)
    return found.groups()


@pytest.mark.parametrize(
    "name",
    [
        "Läufe 早い \U0001f9ca",
        "with space",
        "quote'\"",
        "a" * 200,
        "percent%s%d",
        "new\nline",
        "@40",
        "-dash",
        "~tilde",
        "dot.",
    ],
)
def test_a_run_may_have_any_name_that_a_directory_may_have(name, tmp_path):
    train(tmp_path / name)
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / name)] == [2, 4]
    assert train(tmp_path / name, 2).stats.resumed == 4


def test_a_name_that_is_too_long_is_refused(tmp_path):
    with pytest.raises(deepfreeze.RunError) as caught:
        train(tmp_path / ("a" * 300))
    where, _, found, _ = parts(caught.value)
    assert "a" * 300 in where and "too long" in found.lower()


def test_a_deep_path_works(tmp_path):
    folder = tmp_path
    while len(str(folder)) < 3000:
        folder /= "d" * 100
    folder.mkdir(parents=True)
    train(folder / "run")
    assert deepfreeze.latest(folder / "run").step == 4


def test_a_relative_run_stays_where_it_was_when_the_directory_changes(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    class Move(keras.callbacks.Callback):
        """Changes the process's directory while training goes on."""

        def on_train_batch_end(self, batch, logs=None):
            os.chdir(tmp_path / "elsewhere")

    checkpoint = deepfreeze.Checkpoint("run", every=2)
    model = trainings.dense(keras)
    model.fit(trainings.data(4), verbose=0, shuffle=False, callbacks=[Move(), checkpoint])
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2, 4]
    assert not (tmp_path / "elsewhere" / "run").exists()


def test_a_run_may_be_reached_through_a_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    train(tmp_path / "link" / "run")
    assert deepfreeze.latest(tmp_path / "real" / "run").step == 4


@pytest.mark.parametrize("call", ["mkdir", "fsync"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENOSYS, errno.EIO])
def test_a_store_that_refuses_at_the_start_is_named_before_training(tmp_path, monkeypatch, call, number):
    real = getattr(os, call)

    def refuse(*args, **kwargs):
        if call == "fsync" or str(tmp_path / "run") in str(args[0]):
            raise OSError(number, os.strerror(number), str(args[0]))
        return real(*args, **kwargs)

    model = trainings.dense(keras)
    before = model.get_weights()
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(deepfreeze.RunError) as caught:
        train(tmp_path / "run", model=model)
    monkeypatch.undo()
    where, _, found, _ = parts(caught.value)
    assert str(tmp_path / "run") in where and os.strerror(number) in found
    assert all(np.array_equal(a, b) for a, b in zip(before, model.get_weights(), strict=True)), "no step was done"
    train(tmp_path / "run")
    assert deepfreeze.latest(tmp_path / "run").step == 4, "what the failed start left is in nobody's way"


def test_a_partial_directory_alone_is_no_checkpoint(tmp_path):
    train(tmp_path / "run")
    for info in deepfreeze.checkpoints(tmp_path / "run"):
        os.rename(info.path, info.path.parent / names.partial_dir(info.step, info.attempt))
        (info.path.parent / names.partial_dir(info.step, info.attempt) / "manifest.json").unlink()
    assert deepfreeze.latest(tmp_path / "run") is None
    with pytest.raises(deepfreeze.NotFoundError) as caught:
        deepfreeze.read(tmp_path / "run")
    assert "unfinished" in parts(caught.value)[2]


def test_a_step_that_does_not_exist_is_refused_with_those_that_do(tmp_path):
    train(tmp_path / "run")
    with pytest.raises(deepfreeze.NotFoundError) as caught:
        deepfreeze.restore(trainings.dense(keras), tmp_path / "run", step=3)
    assert re.search(r"\b2\b.*\b4\b", str(caught.value))


def test_a_model_in_a_distribution_strategy_is_refused(tmp_path):
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        model = trainings.dense(keras)
    with pytest.raises(deepfreeze.UnsupportedError) as caught:
        train(tmp_path / "run", model=model)
    assert "Horovod" in parts(caught.value)[3] and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("every", 0),
        ("every", -5),
        ("every", 2.5),
        ("every", "15"),
        ("every", True),
        ("every", None),
        ("keep", 0),
        ("in_flight", -1),
        ("in_flight", "2"),
        ("slots", 1.5),
        ("timeout", 0),
        ("timeout", float("nan")),
        ("state", "all"),
        ("optimizer", "adam"),
        ("extra", [1]),
        ("rng", "some"),
        ("world", "COMM_WORLD"),
        ("local", 5),
    ],
)
def test_a_value_that_can_not_be_meant_is_refused_with_what_can(option, value, tmp_path):
    with pytest.raises((deepfreeze.OptionError, deepfreeze.UnsupportedError)) as caught:
        train(tmp_path / "run", **{option: value})
    assert all(parts(caught.value)) and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("wrong", "right"), [("evry", "every"), ("keeps", "keep"), ("inflight", "in_flight"), ("resme", "resume")]
)
def test_a_misspelt_option_is_refused_with_the_nearest(wrong, right, tmp_path):
    with pytest.raises(deepfreeze.OptionError) as caught:
        deepfreeze.Checkpoint(tmp_path / "run", **{wrong: 1})
    assert f"{right}=" in parts(caught.value)[3]


@pytest.mark.parametrize("run", [None, 5, b"", ["run"]])
def test_a_run_that_is_no_path_is_refused(run):
    with pytest.raises((deepfreeze.OptionError, deepfreeze.RunError)):
        deepfreeze.Checkpoint(run).open(trainings.dense(keras))
