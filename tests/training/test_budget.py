"""``every=Budget(...)`` in trainings of one rank: the search finds a setting on a real store, the engine follows it, and training goes on
whatever the search meets."""

import os
import signal
import time

import keras
import pytest

import deepfreeze
from deepfreeze.events import Decision, Failed, Notice, Superseded
from deepfreeze.events.event_files import EventFiles
from deepfreeze.plan import Budget, FirstOf, OnSignal, budget
from deepfreeze.plan.budget_section import BudgetSection
from deepfreeze.plan.pccheck import Setting, best_of
from deepfreeze.store.plan import read_section
from deepfreeze.store.run import Run
from tests.support import faults, trainings
from tests.support.lives import in_a_life, lives
from tests.support.options import grouped
from veloc_bindings import EmbeddedEngine

pytestmark = pytest.mark.tensorflow
# A checkpoint's bytes take so many milliseconds on their way, however many are written at once.
FAR = "delay=60:pwrite:model.weights.h5:1+"
STEP = 0.004  # seconds that each step takes at least


def tuned(checkpoint, policy):
    """The ranks have agreed on an interval, and a checkpoint was taken by it."""
    return policy.interval > 0 and checkpoint.stats.steps[-1:] > [checkpoint.stats.intervals[0].step]


class Followed:
    """The settings that this process's engines are given: (captures of ``checkpoint`` before, setting)."""

    def __init__(self):
        self.settings, self.checkpoint = [], None
        really = EmbeddedEngine.tune

        def tune(engine, *numbers):
            self.settings.append((self.checkpoint.stats.captures if self.checkpoint else 0, Setting(*numbers)))
            really(engine, *numbers)

        EmbeddedEngine.tune = tune


@pytest.fixture(scope="module", name="trainings")
def module_trainings(testing_library, tmp_path_factory):
    with lives(tmp_path_factory.mktemp("lives"), testing_library) as started:
        yield started


@pytest.fixture
def run(tmp_path):
    return tmp_path / "run"


def far(*more):
    """The store of this process is far away from now on, and meets these faults besides. A busy machine does not end the search."""
    budget._SPARE = 1.0
    faults.plan(",".join([FAR, *more]))


def fit(run, policy=None, over=tuned, every=None, followed=None, beside=lambda step: None, executions=1, **options):
    """A training until ``over(checkpoint, policy)``. Returns the policy, the callback and all events. ``every``: if it is not the policy
    alone; ``beside``: is called after each execution."""
    keras.backend.clear_session()  # as a new process: the layers have the names of the last training's
    policy, events = policy or Budget(0.5), []
    model = trainings.dense(keras, steps_per_execution=executions)
    options = {"verbose": 0, "local": None, "writers": 2, "in_flight": 4, "resume_epochs": False, **options}
    checkpoint = deepfreeze.Checkpoint(run, every or policy, listeners=[events.append], **grouped(options))
    if followed is not None:
        followed.checkpoint = checkpoint

    def ended(batch, logs):
        time.sleep(STEP * executions)
        beside(trainings.count(model.optimizer))
        model.stop_training |= over(checkpoint, policy)

    last = keras.callbacks.LambdaCallback(on_train_batch_end=ended)
    data = trainings.data(4).repeat()
    model.fit(data, steps_per_epoch=10**6, verbose=0, shuffle=False, callbacks=[checkpoint, last])
    return policy, checkpoint, events


def section(run):
    found = read_section(Run.open(run), "budget")
    return None if found is None else BudgetSection.from_json(found)


@in_a_life
def test_a_budget_finds_a_setting_which_the_engine_follows(run):
    """On a store that is far away several are tried at once. No more than 40 checkpoints are taken before, each of them committed."""
    far()
    followed = Followed()
    policy, checkpoint, events = fit(run, followed=followed, keep=99)
    found, stats = section(run), checkpoint.stats
    # A setting with several checkpoints at once wins here, unless the machine is busy with something else. Tests of the search alone
    # (plan/test_pccheck) say which setting is to win.
    best = best_of(found.tried)
    assert best is not None and any(one.setting.transfers > 1 for one in found.tried)
    assert found.chosen == policy.setting and found.chosen.transfers == best.setting.transfers
    settings = [setting for _, setting in followed.settings]
    assert settings[0] == Setting(2, 1, 2) and settings[-1] == found.chosen, "as before, and as found"
    assert list(dict.fromkeys(settings[1:])) == list(dict.fromkeys(one.setting for one in found.tried))
    changes = [captures for captures, _ in followed.settings]
    assert changes == sorted(changes) and changes[1] == 2, "two checkpoints of the profile come first"
    assert sum(one.checkpoints for one in found.tried) + 2 == changes[-1] <= 40
    # Real checkpoints tried each setting, never more of them at once than the setting allows. On a busy machine, where a step takes longer
    # than the store, there may have been fewer.
    assert sorted(stats.committed) == stats.steps == [info.step for info in deepfreeze.checkpoints(run)]
    assert all(1 <= one.under_way <= one.setting.uncommitted for one in found.tried)
    decision = next(one for one in events if isinstance(one, Decision))
    assert (decision.reason, decision.after) == ("profile", found.auto.interval)
    assert stats.steps[changes[-1]] - decision.step in (decision.after, decision.after + 1)
    assert found.limits.most == Setting(2, 4, 4) and found.limits.bound == "memory and slots"


@pytest.mark.full
@in_a_life
def test_a_job_that_is_started_again_tries_nothing(run):
    """Neither does another ``fit`` of the same model."""
    far()
    followed = Followed()
    options = {"writers": 1, "in_flight": 2, "followed": followed}
    first, _, _ = fit(run, **options)
    followed.settings = []
    again, checkpoint, events = fit(run, **options)
    assert {setting for _, setting in followed.settings} == {first.setting} == {again.setting}
    (decision, *_) = [one for one in events if isinstance(one, Decision)]
    assert decision.reason == "resumed" and decision.step - checkpoint.stats.resumed <= 5
    captures = checkpoint.stats.captures
    model = checkpoint.model
    model.stop_training = False
    model.fit(trainings.data(20), epochs=3, verbose=0, shuffle=False, callbacks=[checkpoint])
    assert {setting for _, setting in followed.settings} == {first.setting}
    assert checkpoint.stats.captures - captures <= 60 // decision.after + 2


@pytest.mark.full
@in_a_life
def test_a_second_fit_goes_on_with_the_search(run):
    """What was tried in the first one is not tried again."""
    far()
    policy, followed = Budget(0.5), Followed()
    _, checkpoint, _ = fit(run, policy, lambda one, _: one.stats.commits > 5, followed=followed)
    model, before = checkpoint.model, list(followed.settings)
    assert not policy.interval and len(before) > 2
    after = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: (
            time.sleep(STEP),
            setattr(model, "stop_training", tuned(checkpoint, policy)),
        )
    )
    model.fit(
        trainings.data(4).repeat(), steps_per_epoch=10**6, verbose=0, shuffle=False, callbacks=[checkpoint, after]
    )
    assert policy.interval and section(run).chosen == policy.setting
    tried = [setting for _, setting in followed.settings[len(before) :]]
    assert Setting(1, 1, 1) not in tried[:-1], "the first writers"


def leftovers(run):
    """What no job needs: temporary names, and checkpoints that were not committed."""
    return [name for name in os.listdir(run) if ".partial" in name or name.startswith(".") or name.endswith(".tmp")]


@pytest.mark.parametrize(
    "calls",
    [(1, 2, 3, 4), pytest.param((1, 2), marks=pytest.mark.full), pytest.param((2, 3), marks=pytest.mark.full)],
    ids=["both", "first", "second"],
)
@in_a_life
def test_a_store_that_fills_up_ends_the_search_with_what_fitted(run, calls):
    """With one warning. Of two checkpoints on their way at once both, or one, find the store full. Training goes on to its end, and nothing
    of the failed ones stays."""
    # The profile and one writer alone come before, and four checkpoints are in the trial. Each asks twice: where the engine can remove an
    # older checkpoint, it does, and tries once more.
    far(*(f"fail=ENOSPC:pwrite:model.weights.h5:{2 + 2 + call}" for call in calls))
    with pytest.warns(deepfreeze.CheckpointWarning) as warned:
        policy, checkpoint, events = fit(run, writers=1, in_flight=2)
    messages = [str(one.message) for one in warned if one.category is deepfreeze.CheckpointWarning]
    assert len(messages) == 1 and "No space left on device" in messages[0]
    assert messages[0].endswith(
        "It was taken to try a setting of the engine: training goes on with one that has worked."
    )
    failed = [one for one in events if isinstance(one, Failed)]
    assert len(failed) >= len(calls) // 2 and all(one.tried and one.reported and not one.raised for one in failed)
    found = section(run)
    assert (found.ended, found.chosen) == ("store", Setting(1, 1, 1)) and policy.setting == found.chosen
    stats = checkpoint.stats
    assert sorted(stats.committed) == sorted(set(stats.steps) - {one.step for one in failed})
    assert max(stats.steps) > max(one.step for one in failed), "training went on"
    assert leftovers(run) == []
    assert [info.step for info in deepfreeze.checkpoints(run)] == sorted(stats.committed)[-2:]
    kept = [one for one in EventFiles(run).new() if one["kind"] == "failed"]
    assert [(one["step"], one["tried"]) for one in kept] == [(one.step, True) for one in failed]


@in_a_life
def test_a_failure_outside_of_the_search_is_one_as_ever(run):
    """Here that of the first checkpoint of the profile."""
    far("fail=ENOSPC:pwrite:model.weights.h5:1", "fail=ENOSPC:pwrite:model.weights.h5:2")
    with pytest.raises(deepfreeze.EngineError, match="No space left on device"):
        fit(run, writers=1, in_flight=2)


@pytest.mark.parametrize(
    "options",
    [
        {"when_full": "replace"},
        pytest.param({"keep": 1, "when_full": "skip"}, marks=pytest.mark.full),
        pytest.param({"path": "graph"}, marks=pytest.mark.full),
        pytest.param({"when": "late"}, marks=pytest.mark.full),
        pytest.param({"executions": 4}, marks=pytest.mark.full),
        pytest.param({"local": "auto"}, marks=pytest.mark.full),
        pytest.param({"wait_for": "external"}, marks=pytest.mark.full),
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
@in_a_life
def test_an_engine_is_tuned_whatever_the_other_options_are(run, options):
    """A checkpoint that is given up for a newer one is no failure, and the search goes on."""
    far()
    policy, checkpoint, events = fit(run, writers=1, in_flight=3, **options)
    found, stats = section(run), checkpoint.stats
    assert found.chosen == policy.setting and found.ended not in ("store", "training")
    assert not [one for one in events if isinstance(one, Failed) or getattr(one, "level", None) == "warning"]
    assert sorted([*stats.committed, *stats.superseded]) == stats.steps and len(stats.steps) <= 42
    given_up = [one.step for one in events if isinstance(one, Superseded)]
    if options.get("when_full") == "replace":
        assert given_up and found.limits.behind == 1
        assert all(
            one.setting.transfers < one.setting.uncommitted for one in found.tried if one.setting.uncommitted > 1
        )


@pytest.mark.full
@in_a_life
def test_storage_bounds_how_many_are_tried(run):
    """Two checkpoints are kept, and two more fit."""
    far()
    policy, checkpoint, _ = fit(run, storage=4 * 90_000)
    found = section(run)
    assert (found.limits.bound, found.limits.most.uncommitted) == ("storage", 2)
    assert policy.setting.uncommitted <= 2 and checkpoint.stats.skipped == []


@pytest.mark.full
@in_a_life
def test_a_signal_takes_a_checkpoint_during_the_search_too(run):
    far()
    policy, sent = Budget(0.5), []

    def beside(step):
        if len(sent) < 3 and step > 60 * (len(sent) + 1):
            sent.append(step)
            os.kill(os.getpid(), signal.SIGUSR1)

    every = FirstOf(policy, OnSignal("SIGUSR1"))
    _, checkpoint, _ = fit(run, policy, every=every, writers=1, in_flight=2, keep=99, beside=beside)
    assert sent and all(any(sign < step <= sign + 3 for step in checkpoint.stats.steps) for sign in sent[:-1])
    assert section(run).chosen == policy.setting


@pytest.mark.full
@in_a_life
def test_a_loop_written_by_hand_is_tuned_too(run):
    far()
    policy, followed, model = Budget(0.5), Followed(), trainings.dense(keras)
    options = {"verbose": 0, "local": None, "writers": 1, "in_flight": 2}
    batches = trainings.data(4).repeat()
    with deepfreeze.capture(model.optimizer, model, run, policy, **grouped(options)) as checkpoint:
        followed.checkpoint = checkpoint
        for x, y in batches:
            model.train_on_batch(x, y)
            time.sleep(STEP)
            if tuned(checkpoint, policy):
                break
            checkpoint.step()
    assert section(run).chosen == policy.setting == followed.settings[-1][1]
    assert {setting.uncommitted for _, setting in followed.settings} == {1, 2}


@in_a_life
def test_a_training_that_ends_in_the_search_says_the_best_so_far(run):
    """Its plan has no interval, and the next job searches anew."""
    far()
    _, _, events = fit(run, over=lambda one, _: one.stats.commits == 6, verbose=1)
    (line,) = [one.message for one in events if isinstance(one, Notice) and "ended before" in one.message]
    assert line.startswith(
        "every=Budget(overhead=0.5): the training ended before the engine was tuned; the best of 2 settings so far: 1 "
    )
    assert line.endswith("; its last step is saved")
    found = section(run)
    assert (found.ended, found.auto, len(found.tried)) == ("training", None, 2)
    assert found.chosen in [one.setting for one in found.tried]
