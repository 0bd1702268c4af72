"""The policy of the guide's page "Extend it": which steps are due, when it wishes, and that two ranks agree."""

import pytest

import deepfreeze
from deepfreeze.events import Decision
from deepfreeze.plan import LearningPolicy, Observation, Progressed
from tests.extending.prime_steps import PrimeSteps

PRIMES = [p for p in range(2, 3000) if all(p % d for d in range(2, int(p**0.5) + 1))]


def due(policy, end):
    """All steps up to ``end`` at which a checkpoint is due."""
    steps = [policy.next_step(0)]
    while steps[-1] <= end:
        steps.append(policy.next_step(steps[-1]))
    return steps[:-1]


def execution(step, captured=False, blocking=0.0, committed=None):
    """An execution of one step that took a second; ``committed``: of the checkpoint of step 19."""
    reports = [Progressed(step=19, local=None, written=committed, committed=committed)] if committed else []
    return Observation(step, 1, 1.0, step if captured else None, blocking, reports, len(reports), 1000)


@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_every_nth_prime_is_due(n):
    policy = PrimeSteps(n)
    assert due(policy, 2900) == [p for p in PRIMES[n - 1 :: n] if p <= 2900]
    assert all(policy.next_step(step) == next(p for p in PRIMES[n - 1 :: n] if p > step) for step in range(300))


def test_another_n_counts_from_the_agreed_step_on_and_not_before():
    policy = PrimeSteps()
    assert isinstance(policy, LearningPolicy)
    policy.agree(4, 11)
    policy.agree(2, 37)
    assert due(policy, 70) == [2, 3, 5, 7, 11, 19, 37, 43, 53, 61]


def test_a_rank_wishes_for_twice_n_when_checkpoints_are_costly():
    policy = PrimeSteps(overhead=0.1)
    assert policy.observe(execution(2, captured=True, blocking=9.0)).interval == 0, (
        "the first window has the start in it"
    )
    assert policy.observe(execution(3, captured=True, blocking=0.09)).interval == 0
    assert policy.observe(execution(4, blocking=0.3)).interval == 0, "it may still be cheap until the next checkpoint"
    assert policy.observe(execution(5, captured=True)).interval == 2
    assert (
        policy.observe(execution(6, blocking=0.9)).interval == policy.observe(execution(7, captured=True)).interval == 2
    )
    policy.agree(2, 11)
    assert [policy.observe(execution(8)).interval, policy.observe(execution(13, captured=True)).interval] == [2, 2]
    assert policy.observe(execution(19, captured=True, blocking=0.5)).interval == 4


def test_a_rank_wishes_for_twice_n_when_a_commit_took_too_long():
    policy = PrimeSteps(3, commit_seconds=10, most=8)
    assert policy.observe(execution(20, committed=9.9)).interval == 0
    assert policy.observe(execution(21, committed=10.1)).interval == 6
    policy.agree(6, 37)
    assert policy.observe(execution(40, committed=10.1)).interval == 6, "step 19 was captured before"
    policy.agree(8, 13)
    assert policy.observe(execution(41, committed=10.1)).interval == 6, (
        "n is the largest that this rank ever wishes for"
    )


@pytest.mark.tensorflow
def test_a_training_saves_prime_steps_and_fewer_of_them_when_told(tmp_path):
    import keras

    from tests.support import trainings

    decisions = []
    policy = PrimeSteps(overhead=float("inf"), commit_seconds=0, most=2)
    options = {"wait_for": "external", "keep": 99, "final": False, "listeners": [decisions.append]}
    checkpoint = deepfreeze.Checkpoint(tmp_path / "run", every=policy, **options)
    trainings.dense(keras).fit(trainings.data(24), verbose=0, callbacks=[checkpoint])
    (decision,) = [event for event in decisions if isinstance(event, Decision)]
    assert decision.after == 2 and decision.step < 24
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == due(policy, 24)
    assert len(due(policy, 24)) < len(due(PrimeSteps(), 24))


@pytest.mark.tensorflow
@pytest.mark.ranks
def test_two_ranks_save_the_same_prime_steps(two, tmp_path):
    """Only rank 1 finds that commits take too long."""
    first, second = two.run("primes", folder=tmp_path, steps=24, commit_seconds=[1e9, 0])
    assert first == second and first["error"] is None
    ((step, before, after),) = first["decisions"]
    assert (before, after) == (None, 2)
    policy = PrimeSteps()
    policy.agree(after, step)
    assert first["steps"] == due(policy, 24) and len(first["steps"]) < len(due(PrimeSteps(), 24))
