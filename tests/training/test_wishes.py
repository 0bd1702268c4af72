"""A policy that learns, in a training of one rank: what it is told, what it may wish for, and what an execution can't give."""

import json

import pytest

import deepfreeze
from deepfreeze.events import Decision
from deepfreeze.plan import NEVER, Wish
from tests.support import trainings

pytestmark = pytest.mark.tensorflow


class Doubling:
    """Every second step; from its first commit on it wishes for twice as many. Counts from the step where that was agreed on."""

    def __init__(self, wish=4):
        self.interval, self.begin, self.wish, self.seen = 2, 0, wish, []

    def next_step(self, step):
        if step < self.begin:
            return self.begin
        return self.begin + ((step - self.begin) // self.interval + 1) * self.interval

    def observe(self, observation):
        self.seen.append(observation)
        return Wish(self.wish if any(report.committed for one in self.seen for report in one.reports) else 0)

    def agree(self, wish, step):
        self.interval, self.begin = wish, step


def fit(model, steps, **options):
    checkpoint = deepfreeze.Checkpoint(**options)
    model.fit(trainings.data(steps), verbose=0, shuffle=False, callbacks=[checkpoint])
    return checkpoint


def test_a_policy_sees_each_execution_and_may_change_its_mind(keras, tmp_path):
    policy, decisions = Doubling(), []
    options = {"run": tmp_path / "run", "every": policy, "wait_for": "external", "final": False, "keep": 9}
    checkpoint = fit(trainings.dense(keras), 11, listeners=[decisions.append], **options)
    assert [one.step for one in policy.seen] == list(range(1, 12)) and {one.steps for one in policy.seen} == {1}
    assert checkpoint.stats.steps == [2, 4, 8] == [one.captured for one in policy.seen if one.captured]
    found = [(one.step, one.before, one.after) for one in decisions if isinstance(one, Decision)]
    assert found == [(4, None, 4)], "the commit of step 2 is heard of at step 3, when step 4 is the target"
    assert all(one.seconds > 0 and one.nbytes == checkpoint.stats.nbytes for one in policy.seen)
    assert [one.blocking > 0 for one in policy.seen] == [False, *[True] * 10]
    third = policy.seen[2]
    (report,) = [one for one in third.reports if one.committed]
    assert report.step == 2 and report.committed >= report.written > 0 and not report.failed
    assert report.copy > 0 and report.cpu > 0
    assert third.in_flight == 0
    lines = (tmp_path / "run" / "events").glob("*.jsonl")
    kept = [json.loads(line) for file in lines for line in file.read_text().splitlines()]
    (decision,) = [line for line in kept if line["kind"] == "decision"]
    assert (decision["step"], decision["after"]) == (4, 4) and "before" not in decision


def test_a_policy_that_never_saves_until_it_has_learned_is_asked_again(keras, tmp_path):
    class Waiting(Doubling):
        def next_step(self, step):
            return super().next_step(step) if self.begin else NEVER

        def observe(self, observation):
            return Wish(3 if observation.step >= 5 else 0)

    checkpoint = fit(trainings.dense(keras), 12, run=tmp_path / "run", every=Waiting(), final=False)
    assert checkpoint.stats.steps == [8, 11]


@pytest.mark.full
def test_a_policy_given_as_extra_too_is_resumed_with_what_was_agreed_on(keras, tmp_path):
    class Remembering(Doubling):
        def state_dict(self):
            return {"interval": self.interval, "begin": self.begin}

        def load_state_dict(self, state):
            self.interval, self.begin = state["interval"], state["begin"]

    def job(steps):
        policy, model = Remembering(), trainings.dense(keras)
        options = {"every": policy, "extra": {"policy": policy}, "wait_for": "external", "final": False}
        return fit(model, steps, run=tmp_path / "run", **options).stats.steps

    assert job(11) == [2, 4, 8]
    assert job(8) == [12, 16]  # from step 8 on; every second step would be 10, 12


@pytest.mark.parametrize(
    "wish", [-1, 1.5, *(pytest.param(wish, marks=pytest.mark.full) for wish in (None, NEVER + 1))], ids=str
)
def test_a_wish_that_is_no_interval_is_an_error_with_the_policys_name(keras, tmp_path, wish):
    class Wrong(Doubling):
        def observe(self, observation):
            return Wish(wish)

    with pytest.raises(deepfreeze.OptionError, match=r"every=: expected a policy whose observe\(\) returns .*Wrong"):
        fit(trainings.dense(keras), 3, run=tmp_path / "run", every=Wrong())


def test_a_policy_that_fails_when_told_of_the_agreed_wish_is_named(tmp_path):
    import keras

    class Stubborn(Doubling):
        def observe(self, observation):
            return Wish(4)

        def agree(self, wish, step):
            raise ValueError("no, 2")

    with pytest.raises(deepfreeze.OptionError, match=r"agree\(\) takes .*Stubborn.agree\(4, 2\): ValueError: no, 2"):
        fit(trainings.dense(keras), 3, run=tmp_path / "run", every=Stubborn())


def test_a_policy_that_can_not_be_told_is_refused_at_once(tmp_path):
    class Deaf:
        def next_step(self, step):
            return step + 1

        def observe(self, observation):
            return Wish(1)

    with pytest.raises(deepfreeze.OptionError, match="or with neither; found a Deaf with one of them"):
        deepfreeze.Checkpoint(tmp_path / "run", every=Deaf())


def test_more_than_an_execution_can_give_is_said_once_and_training_goes_on(keras, tmp_path):
    model = trainings.dense(keras, steps_per_execution=4)
    with pytest.warns(deepfreeze.CheckpointWarning) as told:
        checkpoint = fit(model, 16, run=tmp_path / "run", every=1, final=False, keep=9)
        model.fit(trainings.data(8), verbose=0, callbacks=[checkpoint])
    (message,) = [str(one.message) for one in told if "every=" in str(one.message)]
    assert "at most one checkpoint per execution, which is 4 steps here; found steps 1 and 2 due" in message
    assert checkpoint.stats.steps == [1, 5, 9, 13, 17, 21] and checkpoint.stats.skipped == []
    assert trainings.count(model.optimizer) == 24
