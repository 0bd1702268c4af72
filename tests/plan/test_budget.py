"""The policy that tries the engine, in simulated trainings with stores of all kinds."""

import json
import random
from dataclasses import replace

import pytest

from deepfreeze.errors import CorruptError, OptionError
from deepfreeze.plan import NEVER, Budget, EverySteps, FirstOf, Observation, Progressed
from deepfreeze.plan.auto_section import Conditions
from deepfreeze.plan.budget_section import BudgetSection
from deepfreeze.plan.limits import Limits
from deepfreeze.plan.pccheck import Setting
from deepfreeze.plan.policy import PlannedPolicy, TuningPolicy
from deepfreeze.plan.trial_order import TrialOrder
from deepfreeze.plan.trial_results import above_the_median
from deepfreeze.plan.trial_watch import TrialWatch
from tests.support.simulated import Costs, Rank, Training
from tests.support.simulated_store import Speed, Store

HERE = Conditions("ab" * 32, 1, 2.0, "memory")
LIMITS = Limits(Setting(8, 8, 6), 0, "memory and slots", "ext4 at /", "io=direct")
DISK = Speed(work=0.2, writers=2)  # two steps long
PIPELINE = Speed(work=0.2, commit=0.2)
FAR = Speed(work=0.01, latency=1.0)  # each call has a long way


def begun(policy=None, stored=None, limits=LIMITS, conditions=HERE, says=None):
    policy = policy or Budget(0.05)
    policy.limit(limits)
    assert policy.begin(conditions, limits.most.uncommitted, 0, stored) == says
    return policy


def training(speed, ranks=1, costs=None, policies=None, seed=0):
    policies = policies or [begun() for _ in range(ranks)]
    speeds = speed if isinstance(speed, list) else [speed] * ranks
    costs = costs or [Costs()] * ranks
    return Training(
        [Rank(*one, n, seed, Store(fast)) for n, (*one, fast) in enumerate(zip(policies, costs, speeds, strict=True))]
    )


@pytest.mark.parametrize(
    ("speed", "setting", "why"),
    [
        (Speed(work=0.02, writers=2), Setting(8, 1, 1), "steps"),
        (DISK, Setting(8, 1, 1), "gain"),
        (PIPELINE, Setting(8, 1, 3), "gain"),  # with two the store rests until the next step
        (FAR, Setting(8, 4, 4), "checkpoints"),
        (Speed(work=0.01, latency=1.0, fits=2), Setting(8, 2, 2), "store"),
    ],
)
def test_a_training_finds_the_best_setting_of_its_store(speed, setting, why):
    run = training(speed)
    run.run(600)
    policy = run.ranks[0].policy
    assert isinstance(policy, TuningPolicy) and isinstance(policy, PlannedPolicy)
    assert policy.setting == run.ranks[0].store.setting == setting
    assert policy.plan().ended == why
    assert policy.interval >= 1


@pytest.mark.parametrize("speed", [DISK, PIPELINE, FAR, Speed(work=0.01, latency=10.0)])
def test_a_search_takes_at_most_40_checkpoints_and_2_percent_of_2000_steps(speed):
    run = training(speed)
    rank = run.ranks[0]
    while not rank.policy.interval:
        run.run(1)
    searched = [step for step in run.captured if step <= run.step]
    assert len(searched) <= 40
    of_checkpoints = len(searched) * Costs().copy(0)
    assert rank.seconds - rank.plain - of_checkpoints <= 0.02 * 2000 * 0.1


def test_the_interval_keeps_both_bounds():
    """f1 = ceil(Tw / (N q t)), and ceil(To / ((q - 1) t)): the first one holds where the store is slow, the second where copies cost
    much."""
    run = training(FAR)
    run.run(600)
    tuned = run.ranks[0].policy.plan()
    best = next(one for one in tuned.tried if one.setting == tuned.chosen)
    assert run.intervals[0][1] == -(-best.commit // (4 * 1.05 * 0.1)) == 4
    run = training(PIPELINE, costs=[Costs(copy=lambda step: 0.05)])
    run.run(400)
    terms = run.ranks[0].policy.plan().auto.terms
    assert run.intervals[0][1] == terms.by_budget == 10 > terms.by_commit


def test_a_noisy_search_seldom_takes_a_checkpoint_for_cheaper_than_it_is():
    """Steps of 100 ms, give or take 8 %, and checkpoints of 30 ms: the budget of 5 % asks for 6 steps from one to the next."""
    first = []
    for seed in range(24):
        run = training(DISK, costs=[Costs(copy=lambda step: 0.03, noise=0.08)], seed=seed)
        while not run.intervals:
            run.run(50)
        first.append(run.intervals[0][1])
    assert sum(interval < 6 for interval in first) <= 2 and max(first) <= 30, first


def test_a_median_is_below_its_bound_in_15_of_16_cases():
    """And not in many more, where samples are enough to tell; else the largest one is the bound."""
    rng = random.Random(1)
    for samples in (8, 20):
        bounds = [above_the_median([rng.gauss(0.0, 1.0) for _ in range(samples)]) for _ in range(2000)]
        assert 0.93 < sum(bound > 0 for bound in bounds) / len(bounds) < 0.98
    assert above_the_median([3.0]) == 3.0 and above_the_median([9, 1, 3, 2]) == 9
    assert above_the_median([1, 2, 3, 4, 5, 6, 7, 99]) == 7


@pytest.mark.parametrize("slow", [0, 2])
def test_ranks_try_the_same_settings_and_the_slowest_one_decides(slow):
    """The store is one; a rank may take longer for its own copies. The steps that are captured are asserted by the simulation."""
    costs = [Costs(copy=lambda step: 0.001)] * 3
    costs[slow] = Costs(copy=lambda step: 0.05)
    run = training(FAR, ranks=3, costs=costs)
    run.run(600)
    assert {rank.policy.setting for rank in run.ranks} == {Setting(8, 4, 4)}
    assert run.intervals[0][1] == 10, "5 % of ten steps is what a checkpoint costs there"


def stored(run):
    return json.loads(json.dumps(run.ranks[0].policy.plan().to_json()))


def test_a_job_that_is_started_again_tries_nothing():
    first = training(FAR)
    first.run(600)
    again = begun(stored=stored(first))
    assert again.setting == Setting(8, 4, 4)
    run = training(FAR, policies=[again])
    assert run.ranks[0].store.setting == Setting(8, 4, 4), "from its first step on"
    run.run(200)
    assert again.order == 0
    assert run.intervals[0][1] == first.ranks[0].policy.interval
    assert again.plan().tried == first.ranks[0].policy.plan().tried, "the table stays"


@pytest.mark.parametrize(
    ("limits", "conditions", "because"),
    [
        (replace(LIMITS, store="lustre at /scratch"), HERE, "the external store was ext4 at / and is lustre at /scratch"),
        (replace(LIMITS, most=Setting(8, 8, 3)), HERE, f"the limits were {LIMITS.most} and are 3 uncommitted, 8 writers, 8 transfers"),
        (replace(LIMITS, options="io=buffered"), HERE, "the options were io=direct and are io=buffered"),
        (LIMITS, Conditions("ab" * 32, 4, 2.0, "memory"), "the number of ranks was 1 and is 4"),
    ],
)  # fmt: skip
def test_other_conditions_are_measured_anew_and_why_is_said(limits, conditions, because):
    first = training(FAR)
    first.run(600)
    says = ("info", f"the training and its engine are measured again, because {because}")
    again = begun(stored=stored(first), limits=limits, conditions=conditions, says=says)
    assert (again.interval, again.setting) == (0, Setting(8, 1, 2))


def test_another_fit_goes_on_with_the_search():
    policy = begun()
    first = training(FAR, policies=[policy])
    first.run(200)
    before = policy.plan()
    assert before.auto is None and before.ended == "training" and len(before.tried) >= 6
    begun(policy)
    assert policy.order == 0
    run = training(FAR, policies=[policy])
    while not policy.interval:
        run.run(1)
    assert policy.setting == Setting(8, 4, 4)
    assert len(first.captured) + len(run.captured) <= 42, "the trial that was cut off is tried again, and nothing else"
    assert policy.plan().tried[: len(before.tried)] == before.tried
    begun(policy, stored=policy.plan().to_json())
    assert policy.setting == Setting(8, 4, 4) and policy.interval, "a third one tries nothing"


def test_a_training_that_ends_before_the_search_says_the_best_so_far():
    policy, where = begun(), "every=Budget(overhead=0.05): the training ended before"
    assert policy.ended() == f"{where} an interval was chosen (no step without a checkpoint was timed)"
    assert policy.plan() is None
    training(FAR, policies=[policy]).run(200)
    said = policy.ended()
    assert said.startswith(
        f"{where} the engine was tuned; the best of 6 settings so far: 2 uncommitted, 8 writers, 2 transfers, "
    )


def test_a_job_that_is_killed_in_its_search_goes_on_with_it():
    """Its profile is made anew; what was tried is not tried again."""
    policy = begun()
    first = training(FAR, policies=[policy])
    first.run(200)
    again = begun(stored=json.loads(json.dumps(policy.plan().to_json())))
    assert again.setting == Setting(8, 1, 2)
    run = training(FAR, policies=[again])
    while not again.interval:
        run.run(1)
    assert again.setting == Setting(8, 6, 6), "it comes further than one search does"
    assert again.plan().tried[:6] == policy.plan().tried[:6]
    assert len(run.captured) <= 40


def test_a_trial_that_something_disturbs_is_tried_again():
    """A validation of a minute comes at any step of the search."""
    wrong = 0
    for step in range(20, 240, 9):
        run = training(FAR)
        run.ranks[0].pauses = frozenset({step})
        run.run(700)
        wrong += run.ranks[0].policy.setting != Setting(8, 4, 4)
    assert wrong == 0


@pytest.mark.parametrize("other", [EverySteps(100), EverySteps(1000)])
def test_a_search_does_not_wait_for_the_steps_of_another_policy(other):
    policy = begun()
    run = training(FAR, policies=[FirstOf(other, policy)])
    while not policy.interval:
        run.run(1)
    assert run.step < 400 and policy.setting == Setting(8, 4, 4)
    assert other.next_step(0) in run.captured or run.step < other.next_step(0)


def test_a_rank_whose_reports_are_late_still_wishes_for_its_interval():
    """The first trial begins before the second checkpoint of that rank's profile is committed there."""
    late = Speed(work=0.01, latency=1.6)
    run = training([FAR, late], ranks=2, costs=[Costs(copy=lambda step: 0.001), Costs(copy=lambda step: 0.05)])
    run.run(2000)
    assert run.ranks[0].policy.interval >= 10, "5 % of ten steps is what a checkpoint costs on the second rank"


def test_a_checkpoint_stays_one_of_a_trial_when_the_trial_is_over():
    """Another rank may hear of its failure later."""
    run = training(FAR)
    run.run(600)
    policy = run.ranks[0].policy
    tried = [step for step in run.captured if policy.is_trial(step)]
    assert len(tried) >= 12 and max(tried) < run.intervals[0][0]
    assert not policy.is_trial(tried[-1] + 1) and not policy.is_trial(run.captured[-1])


def observed(step, captured=None, reports=(), in_flight=0, paused=False):
    return Observation(step, 1, 0.1, captured, 0.0, reports, in_flight, 1000, paused=paused)


def test_a_checkpoint_of_a_trial_that_was_never_handed_over_is_not_waited_for():
    watch = TrialWatch(TrialOrder(1, Setting(1, 1, 2), 2), 10, 0.1)
    watch.add(observed(11, captured=11, in_flight=1))
    watch.add(observed(12, captured=12, in_flight=1))  # its hand-over has raised, so no report comes
    watch.add(observed(13, reports=[Progressed(11, 0.2, 0.2, 0.2)]))
    assert not watch.is_over, "the capture may be heard of later"
    watch.add(observed(14))
    assert watch.is_over and not watch.failed and watch.tried.checkpoints == 1


def test_a_checkpoint_that_is_given_up_is_no_failure():
    watch = TrialWatch(TrialOrder(1, Setting(1, 1, 2), 2), 10, 0.1)
    watch.add(observed(11, captured=11, in_flight=1))
    watch.add(observed(12, captured=12, in_flight=2))
    done = [Progressed(11, None, None, None, failed=True, superseded=True), Progressed(12, 0.1, 0.1, 0.1)]
    watch.add(observed(14, reports=done))
    assert watch.is_over and not watch.failed and watch.tried.checkpoints == 1


def test_one_more_than_the_transfers_is_chosen_where_one_must_wait():
    limits = replace(LIMITS, behind=1)
    for speed in (DISK, Speed(work=0.02), FAR):
        run = training(speed, policies=[begun(limits=limits)])
        run.run(700)
        setting = run.ranks[0].policy.setting
        assert setting.uncommitted > setting.transfers


def test_a_first_checkpoint_that_fails_ends_the_search_with_one_at_a_time():
    run = training(Speed(work=0.01))
    run.run(14)
    run.ranks[0].store.speed.fits = 10  # the two of the profile are committed
    while run.ranks[0].policy.order == 0:
        run.run(1)
    run.ranks[0].store.speed.fits = 0
    run.run(30)
    assert run.ranks[0].policy.setting == Setting(8, 1, 1)
    assert run.ranks[0].policy.plan() is None, "nothing was found out that a later job could use"


def test_nothing_is_due_between_the_trials():
    policy = begun()
    assert policy.next_step(0) == NEVER
    run = training(FAR, policies=[policy])
    run.run(40)
    assert policy.interval == 0 and len(run.captured) < 10


def test_the_section_is_read_strictly():
    run = training(FAR)
    run.run(600)
    section = stored(run)
    found = BudgetSection.from_json(section)
    assert found.to_json() == section and found.rate == pytest.approx(1000 / 1.01)
    for change in (
        {"ended": "tired"},
        {"chosen": {**section["chosen"], "writers": 0}},
        {"chosen": {**section["chosen"], "writers": LIMITS.most.writers + 1}},
        {"tried": [{**section["tried"][0], "period": 0.0}]},
        {"tried": section["tried"] * 20},
        {"key": {**section["key"], "more": 1}},
        {"auto": {**section["auto"], "interval": 0}},
        {"iteration": 0},
        {"more": 1},
    ):
        with pytest.raises(CorruptError):
            BudgetSection.from_json({**section, **change})
        policy = Budget(0.05)
        policy.limit(LIMITS)
        level, message = policy.begin(HERE, 6, 0, {**section, **change})
        assert level == "warning" and message.endswith("The training and its engine are measured again.")
        assert policy.interval == 0


@pytest.mark.parametrize("overhead", [0, -0.1, 1.5, float("nan"), "3 %", None])
def test_a_wrong_budget_is_refused(overhead):
    with pytest.raises(OptionError, match=r"Budget\(overhead"):
        Budget(overhead)
