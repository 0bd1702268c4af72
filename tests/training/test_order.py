"""In which order an execution of a training calls the rooms below: a table of the kinds of executions, recorded from the running code.

The table is ``order.txt``. A change of the order is a change of what a training promises (a skipped step is agreed on before the execution
that would capture it, a step is told of before the ranks settle), so the table changes only where that is meant."""

import os
import re
import signal
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import keras
import numpy as np
import pytest

import deepfreeze
import veloc_bindings
from deepfreeze.engine.open_engine import OpenEngine
from deepfreeze.errors import EngineError
from deepfreeze.plan import EveryEpoch, Wish
from deepfreeze.plan.job_end import JobEnd
from deepfreeze.retention.usage import Usage
from tests.support import order, trainings
from veloc_bindings import EmbeddedEngine

pytestmark = pytest.mark.tensorflow
TABLE = Path(__file__).with_name("order.txt")


def settled(poll):
    """An engine that has committed every checkpoint when it is asked for reports. So the store's speed does not change the order."""

    def settle(self):
        assert self.drain(60.0)
        return poll(self)

    return settle


def patient(drain):
    """A wait for the engine ends when everything is committed, however slow the store is."""
    return lambda self, seconds: drain(self, 60.0)


def reported(step, **instead):
    """The engine reports the checkpoint of ``step`` otherwise than it is."""

    def change(poll):
        def changed(self):
            reports, _ = settled(poll)(self)
            found = [report._replace(**instead) if report.step == step else report for report in reports]
            return found, found == reports

        return changed

    return OpenEngine, "poll", change


def answer(owner, name, value):
    """The method ``name`` of the class ``owner`` returns ``value``, whatever it is asked."""
    return owner, name, lambda _: lambda *args, **options: value


FULL = (answer(OpenEngine, "room", 0),)
# A store that commits at once never holds a checkpoint, so the test answers for the native engine.
HELD = (*FULL, answer(EmbeddedEngine, "hold", True), answer(EmbeddedEngine, "replace", None))
NO_STORAGE = answer(Usage, "fits", False), answer(Usage, "is_full", True)


class Learning:
    """Wishes for another interval at the second execution, and for a checkpoint soon at the fourth."""

    def __init__(self):
        self.interval = 4

    def next_step(self, step):
        return step - step % self.interval + self.interval

    def observe(self, observation):
        return Wish(3 if observation.step >= 2 else 0, now=observation.step == 4)

    def agree(self, interval, step):
        self.interval = interval


class At(keras.callbacks.Callback):
    """Calls ``act`` behind the batch of this number, from 1."""

    def __init__(self, batch, act):
        super().__init__()
        self.at, self.act = batch, act

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 == self.at:
            self.act()


def fit(run, steps=6, epochs=1, callbacks=(), model=None, **options):
    checkpoint = deepfreeze.Checkpoint(run, **{"every": 4, "verbose": 0, **options})
    batches = options.get("data") or trainings.data(steps)
    fitting = {"epochs": epochs, "verbose": 0, "shuffle": False, "callbacks": [*callbacks, checkpoint]}
    (model or trainings.dense(keras)).fit(batches, **fitting)


def two_fits(run):
    """The second ``fit`` finds the captures that the first ``fit`` has left in the model."""
    model = trainings.dense(keras)
    checkpoint = deepfreeze.Checkpoint(run, every=4, verbose=0, resume_epochs=False)
    for _ in range(2):
        model.fit(trainings.data(3), verbose=0, shuffle=False, callbacks=[checkpoint])


def stopping():
    return keras.callbacks.EarlyStopping("loss", patience=9)


def loop(run):
    model = trainings.dense(keras)
    with deepfreeze.capture(model.optimizer, model, run, every=2, verbose=0) as checkpoint:
        for x, y in trainings.data(3):
            model.train_on_batch(x, y)
            checkpoint.step()


def signalled():
    os.kill(os.getpid(), signal.SIGTERM)


@dataclass
class Kind:
    """A kind of execution. ``train``: a function that trains in the run it is given; ``calls``: the calls that the table shows of this
    training; ``patches``: methods that are replaced while it trains; ``error``: the exception that ends it, None for none."""

    train: Callable
    calls: tuple[str, ...]
    patches: tuple = ()
    error: type | None = None


def epochs_with_a_callback(run):
    fit(run, steps=2, epochs=2, every=EveryEpoch(), extra={"stopping": (callback := stopping())}, callbacks=[callback])


def signal_with_data(run):
    """Training ends with the next epoch's first step, so that the last checkpoint has what callbacks do at the end of an epoch."""
    x = np.ones((4, trainings.FEATURES), np.float32)
    fit(run, epochs=2, callbacks=[At(2, signalled)], data=deepfreeze.data.Resumable((x, x[:, :1]), batch_size=2))


NEAR = answer(JobEnd, "near", True), answer(JobEnd, "known", True)
FAILED = (reported(2, code=veloc_bindings.IO, message="/mnt/x: expected to write, found EIO"),)
SUPERSEDED = (reported(2, code=veloc_bindings.SUPERSEDED, superseded_by=4),)
SKIPPING = deepfreeze.Engine(when_full="skip")
REPLACING = deepfreeze.Engine(when_full="replace")

KINDS = {
    "nothing due": Kind(fit, ("executed 2",)),
    "due": Kind(fit, ("executed 3", "executed 4", "executed 5")),
    "the first of a training": Kind(fit, ("executed 1",)),
    "the first of a second fit": Kind(two_fits, ("executed 4",)),
    "the last": Kind(fit, ("executed 6", "epoch_ended 1", "save_last 1", "end 1")),
    "a late copy is pending": Kind(
        lambda run: fit(run, every=2, capture=deepfreeze.Capture(when="late")), ("executed 2", "executed 3")
    ),
    "held at an epoch's end": Kind(epochs_with_a_callback, ("executed 2", "epoch_ended 1", "epoch_begins 2")),
    "skipped": Kind(lambda run: fit(run, every=3, engine=SKIPPING), ("executed 1", "executed 2", "executed 3"), FULL),
    "replaced": Kind(lambda run: fit(run, every=2, engine=REPLACING), ("executed 2", "executed 3", "executed 4"), HELD),
    "superseded": Kind(lambda run: fit(run, every=2), ("executed 3",), SUPERSEDED),
    "a signal": Kind(lambda run: fit(run, callbacks=[At(2, signalled)]), ("executed 2",)),
    "a signal at the end of an epoch, with data=": Kind(
        signal_with_data, ("executed 2", "epoch_ended 1", "epoch_begins 2", "executed 3")
    ),
    "the job's end": Kind(fit, ("executed 1",), NEAR),
    "the storage is full": Kind(
        lambda run: fit(run, every=2, storage="1 GB"), ("executed 1", "executed 2", "end 1"), NO_STORAGE
    ),
    "failed": Kind(lambda run: fit(run, every=2), ("executed 3",), FAILED, EngineError),
    'failed, with on_error="warn"': Kind(lambda run: fit(run, every=2, on_error="warn"), ("executed 3",), FAILED),
    "steps_per_execution": Kind(
        lambda run: fit(run, 9, model=trainings.dense(keras, steps_per_execution=3)), ("executed 1", "executed 2")
    ),
    "a policy that learns": Kind(
        lambda run: fit(run, 9, every=Learning()),
        ("executed 2", "executed 3", "executed 4", "executed 5", "executed 6"),
    ),
    "a loop": Kind(loop, ("executed 1", "executed 2", "end 1")),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A function that returns the table's lines for a kind. Kinds with the same training share one run of it."""
    found = {}

    def record(kind):
        if (kind.train, kind.patches) not in found:
            found[kind.train, kind.patches] = noted(kind, tmp_path_factory.mktemp("order") / "run")
        return found[kind.train, kind.patches].of(kind.calls)

    return record


def noted(kind, run):
    """Trains as the kind says. Returns the ``Order`` with the calls and acts of this training."""
    always = [(OpenEngine, "poll", settled), (OpenEngine, "drain", patient)]
    with ExitStack() as patches:
        for owner, name, change in [*always, *kind.patches]:
            patches.enter_context(mock.patch.object(owner, name, change(getattr(owner, name))))
        found = patches.enter_context(order.noted(Learning))
        if kind.error is not None:
            patches.enter_context(pytest.raises(kind.error))
        kind.train(run)
    return found


def table():
    """The table's lines by the name of the kind."""
    parts = re.split(r"^# (.*)\n", TABLE.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], (part.strip("\n") + "\n" for part in parts[1::2]), strict=True))


@pytest.mark.filterwarnings("ignore::deepfreeze.CheckpointWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_an_execution_calls_the_rooms_below_in_the_order_of_the_table(kind, recorded):
    assert recorded(KINDS[kind]) == table()[kind]


def test_the_table_has_no_other_kinds():
    assert list(table()) == list(KINDS)
