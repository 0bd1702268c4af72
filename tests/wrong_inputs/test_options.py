"""Options of the wrong name, type, sign or size: refused before there is a run."""

import dataclasses
import inspect
import signal

import keras
import numpy as np
import pytest

import deepfreeze
from deepfreeze.errors import OptionError
from deepfreeze.training.options import Options
from tests.support import trainings
from tests.support.options import GROUPS, MEMBERS
from tests.support.refusals import refused

pytestmark = pytest.mark.tensorflow

COUNTS = [0, -1, True, 2.0, "2", None, 2**31, 2**32, 2**32 + 1, 2**70]


def where(option):
    """How an error names the option: "keep=" or "Engine(slots=)"."""
    group, name = MEMBERS.get(option, (None, option))
    return f"{GROUPS[group].__name__}({name}=)" if group else f"{name}="


@pytest.fixture(scope="module")
def one_model():
    return trainings.dense(keras)


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        *[("every", value, "a whole number of steps") for value in (0, -5, 2.5, "15", True, None, float("nan"), 2**62)],
        *[("keep", value, "a whole number from 1 to 2147483647") for value in COUNTS],
        *[
            (name, value, "a whole number from 1 to 1024, or None")
            for name in ("in_flight", "slots")
            for value in COUNTS
            if value is not None
        ],
        *[("writers", value, "a whole number from 1 to 256") for value in COUNTS],
        *[("chunk_bytes", value, "a multiple of 4096") for value in (0, 1000, -4096, 4096.0, 2**70)],
        *[("nice", value, "a whole number from 0 to 19") for value in (-1, 20, True, "10", None)],
        *[("uncommitted", value, "a whole number from 1 to 2048, or None") for value in (0, -1, True, 1.5, "1")],
        *[
            ("rate", value, "a whole number from 1048576 to 1125899906842624, or None")
            for value in (0, 1e9, True, "1G")
        ],
        *[("parts", value, "a whole number from 0 to 1048576") for value in (-1, 1.5, "2", False, None)],
        *[
            ("timeout", value, "seconds, more than 0")
            for value in (0, -1, float("nan"), float("inf"), "600", None, True)
        ],
        *[("verbose", value, "a whole number from 0 to 1") for value in (-1, 2, "1", None)],
        *[("final", value, "one of True, False") for value in (1, 0, "no", None)],
        *[("save_config", value, "one of True, False") for value in (1, "yes")],
        ("logs", 1, "one of True, False"),
        *[("resume", value, "one of 'auto', 'required', 'off'") for value in ("yes", True, None)],
        ("wait_for", "disk", "one of 'captured', 'local', 'external'"),
        ("on_error", "ignore", "one of 'raise', 'warn'"),
        *[("ends_at", value, '"auto", None, or a time in Unix seconds') for value in ("14:00", True, float("nan"))],
        ("ends_at", 0, "a time that is to come, in Unix seconds"),
        *[("signals", value, "a list of signals") for value in ("SIGTERM", 15, None, {"SIGTERM"})],
        ("when_full", "drop", "one of 'wait', 'skip', 'replace'"),
        ("io", "mmap", "one of 'auto', 'direct', 'buffered'"),
        *[("transfers", value, "a whole number from 1 to 64") for value in (0, 65, True, 1.5, "2")],
        ("on_divergence", None, "one of 'auto', 'warn', 'raise'"),
        ("state", "all", "one of 'full', 'weights'"),
        ("placement", ["per_layer"], "one of 'per_layer', 'contiguous'"),
        ("path", "op", "one of 'auto', 'graph'"),
        ("rng", "some", "one of None, 'all'"),
        *[("optimizer", value, "one of the model's own optimizers") for value in ("adam", 5, keras.optimizers.Adam)],
        *[("extra", value, "a mapping of names to objects") for value in ([1], {1: 2}, {1: 2, "b": 3})],
        ("local", 5, '"auto", a directory or None'),
        ("local", "", '"auto", a directory or None'),
        ("local", b"/tmp", '"auto", a directory or None'),
        ("world", "COMM_WORLD", "an mpi4py communicator"),
        ("engine", {"writers": 4}, "a deepfreeze.Engine, for example deepfreeze.Engine(in_flight=...)"),
        ("replicas", None, "a deepfreeze.Replicas"),
        ("capture", "graph", "a deepfreeze.Capture"),
    ],
)
def test_a_value_that_can_not_be_meant_is_refused_with_what_can(option, value, expected, tmp_path, train, one_model):
    def action():
        train(tmp_path / "run", model=one_model, **{option: value})

    found = "" if isinstance(value, float) and value != value else repr(value)
    refused(action, OptionError, where=where(option), expected=expected, found=found, folder=tmp_path, model=one_model)


@pytest.mark.parametrize(
    ("wrong", "todo"),
    [
        ("evry", "did you mean every="),
        ("keeps", "did you mean keep="),
        ("inflight", "pass engine=deepfreeze.Engine(in_flight=...)"),
        ("writers", "pass engine=deepfreeze.Engine(writers=...)"),
        ("on_divergance", "pass replicas=deepfreeze.Replicas(on_divergence=...)"),
        ("filepath", "run= names the directory of the run"),
        ("resme", "did you mean resume="),
        ("save_freq", "did you mean every="),
        ("max_to_keep", "did you mean keep="),
        ("save_best_only", 'not here (see "Coming from Keras\'s ModelCheckpoint" in the guide): keep='),
        ("monitor", 'keep=deepfreeze.store.Best("val_loss", "min") names a metric'),
        ("qqq", "the options are every, resume, keep"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest(wrong, todo, tmp_path):
    def action():
        deepfreeze.Checkpoint(tmp_path / "run", **{wrong: 1})

    refused(action, OptionError, where=f"{wrong}=", found="an unknown name", todo=todo, folder=tmp_path)


@pytest.mark.parametrize(
    ("group", "wrong", "todo"),
    [
        (deepfreeze.Engine, "inflight", "did you mean in_flight="),
        (deepfreeze.Replicas, "prts", "did you mean parts="),
        (deepfreeze.Capture, "keep", "the options are path, placement"),
    ],
)
def test_an_unknown_option_of_a_group_is_refused_with_the_nearest(group, wrong, todo, tmp_path):
    refused(
        lambda: group(**{wrong: 1}), OptionError, where=f"{wrong}=", found="an unknown name", todo=todo, folder=tmp_path
    )


def test_every_option_is_in_the_signatures():
    """Completion, ``help`` and type checkers see each option, with its default."""
    options = {field.name: field.default for field in dataclasses.fields(Options)}
    for taker, own, lacks in (
        (deepfreeze.Checkpoint, {"run", "every"}, set()),
        (deepfreeze.capture, {"optimizer", "model", "run", "every"}, {"optimizer", "resume_epochs", "logs"}),
    ):
        shown = {
            name: one.default
            for name, one in inspect.signature(taker).parameters.items()
            if one.kind is not one.VAR_KEYWORD
        }
        wanted = {name: options[name] for name in options if name not in lacks}
        assert {name: default for name, default in shown.items() if name not in own} == wanted


def test_numbers_of_numpy_are_numbers():
    engine = deepfreeze.Engine(writers=np.uint8(1), nice=np.int32(0))
    made = Options.of(keep=np.int64(3), timeout=np.float32(2), verbose=True, engine=engine)
    assert (made.keep.n, engine.writers, engine.nice, made.timeout, made.verbose) == (3, 1, 0, 2.0, 1)
    assert all(type(one) is int for one in (made.keep.n, engine.writers, engine.nice, made.verbose))


@pytest.mark.parametrize("option", ["keep", "in_flight", "slots"])
def test_the_largest_value_that_is_taken_works(option, tmp_path, train):
    most = {"keep": 2**31 - 1, "in_flight": 1024, "slots": 1024}[option]
    train(tmp_path / "run", 6, local=None, **{option: most})
    assert deepfreeze.latest(tmp_path / "run").step == 6
    kept = [info.step for info in deepfreeze.checkpoints(tmp_path / "run")]
    assert kept == ([2, 4, 6] if option == "keep" else [4, 6])


@pytest.mark.parametrize("run", [None, 5, b"", "", ["run"], "nul\0inside", b"nul\0inside"])
def test_a_run_that_is_no_path_is_refused_by_whoever_is_given_it(run, tmp_path, model):
    readers = (
        lambda: deepfreeze.Checkpoint(run),
        lambda: deepfreeze.capture(model.optimizer, model, run),
        lambda: deepfreeze.checkpoints(run),
        lambda: deepfreeze.latest(run),
        lambda: deepfreeze.read(run),
        lambda: deepfreeze.restore(model, run),
        lambda: deepfreeze.transfer(model, run),
        lambda: deepfreeze.export(run, tmp_path / "out.weights.h5"),
    )
    for action in readers:
        refused(
            action, OptionError, where="run=", expected="a directory", found=repr(run), folder=tmp_path, model=model
        )


@pytest.mark.parametrize("wrong", ["SIGKILL", True, "TERM", 0, signal.SIGSTOP, None])
def test_a_signal_that_no_program_can_handle_is_named(wrong, tmp_path):
    with pytest.raises(
        OptionError, match=r"signals=: expected a signal that a program can handle, .*; found "
    ) as refusal:
        deepfreeze.Checkpoint(tmp_path, signals=["SIGUSR2", wrong])
    assert repr(wrong) in str(refusal.value)
