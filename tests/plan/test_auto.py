"""The policy that measures, in simulated trainings: steps, checkpoints and stores of all speeds, also such as change."""

import itertools
import json

import pytest
from hypothesis import strategies as st

from deepfreeze.errors import OptionError
from deepfreeze.plan import NEVER, Auto, FirstOf
from deepfreeze.plan.auto_section import AutoSection, Conditions, Decided
from deepfreeze.plan.chosen_policy import chosen_policy
from deepfreeze.plan.every import as_policy
from tests.support.properties import holds
from tests.support.simulated import Costs, Rank, Training

HERE = Conditions("ab" * 32, 1, 2.0, "memory")


def begun(policy, stored=None, conditions=HERE, uncommitted=2):
    assert policy.begin(conditions, uncommitted, 0, stored) is None
    return policy


def training(costs, overhead=0.05, ranks=1, uncommitted=2, seed=0, mtbf=None):
    policies = [begun(Auto(overhead, mtbf), uncommitted=uncommitted) for _ in range(ranks)]
    costs = costs if isinstance(costs, list) else [costs] * ranks
    return Training([Rank(policy, cost, n, seed) for n, (policy, cost) in enumerate(zip(policies, costs, strict=True))])


def from_step(at, before, after):
    return lambda step: before if step < at else after


def overhead_of(simulated, steps):
    """The overhead of so many further steps, on the rank that has most of it."""
    before = [(rank.seconds, rank.plain) for rank in simulated.ranks]
    simulated.run(steps)
    return max((rank.seconds - s) / (rank.plain - p) - 1 for rank, (s, p) in zip(simulated.ranks, before, strict=True))


stores = st.builds(
    dict,
    overhead=st.sampled_from([0.02, 0.035, 0.05, 0.1]),
    cost=st.floats(0.02, 3.0),  # of a checkpoint, in steps
    writing=st.floats(0.0, 0.5),  # the part of the cost that comes with the writes
    persist=st.floats(0.1, 6.0),  # steps
    change=st.sampled_from(["none", "cost", "faster", "slower", "store"]),
    factor=st.floats(1.5, 6.0),
    noise=st.sampled_from([0.0, 0.02]),
    seed=st.integers(0, 99),
)


def simulated(store, at):
    """A training whose costs change at a step."""
    now = {name: from_step(at, 1.0, store["factor"] if store["change"] == name else 1.0) for name in ("cost", "store")}
    speed = from_step(at, 1.0, {"faster": 1 / store["factor"], "slower": store["factor"]}.get(store["change"], 1.0))
    cost = lambda step: 0.1 * store["cost"] * now["cost"](step)  # noqa: E731
    costs = Costs(
        iteration=lambda step: 0.1 * speed(step),
        copy=lambda step: cost(step) * (1 - store["writing"]),
        writing=lambda step: cost(step) * store["writing"],
        persist=lambda step: 0.1 * store["persist"] * now["store"](step),
        noise=store["noise"],
    )
    return training(costs, store["overhead"], seed=store["seed"]), cost, lambda step: 0.1 * speed(step)


@pytest.mark.slow
@holds(store=stores, examples=6)
def test_the_interval_never_stays_above_the_budget_and_settles(store):
    """After twenty windows the overhead is the budget's, within the noise; and the interval changes no more without a cause."""
    run, cost, iteration = simulated(store, at=2000)
    run.run(2000)
    if store["change"] != "none":
        needed = cost(run.step) / iteration(run.step) / store["overhead"]
        run.run(int(100 * max(needed, 8, store["persist"] * store["factor"])))
    k = run.ranks[0].policy.interval
    found = overhead_of(run, 60 * k)
    assert found <= store["overhead"] * 1.15 + 2 * store["noise"]
    if store["noise"] == 0:
        run.run(20 * run.ranks[0].policy.interval)
        settled = run.ranks[0].policy.interval
        run.run(100 * settled)
        assert abs(run.ranks[0].policy.interval - settled) <= max(1, settled // 5)


@pytest.mark.slow
@holds(store=stores, examples=6)
def test_it_is_no_longer_than_needed(store):
    """Without noise the settled interval is at most twice what the budget and the commits need, and an execution."""
    store = store | {"noise": 0.0}
    run, _, iteration = simulated(store, at=2000)
    run.run(2000)
    longest = max(run.ranks[0].policy.interval, 8)
    run.run(int(400 * longest))
    step, interval = run.step, run.ranks[0].policy.interval
    # The steps until the commit are slower, too. So a checkpoint costs more than its copy and the wait for the write of weights.
    budget = overhead_of(run, 60 * interval) * interval / store["overhead"]
    commit = 0.1 * store["persist"] * (store["factor"] if store["change"] == "store" else 1) / iteration(step)
    assert interval <= 2 * max(budget, commit) + 3


def test_a_profile_takes_a_hundredth_of_an_epoch_and_two_checkpoints():
    run = training(Costs(copy=lambda step: 0.02, noise=0.01))
    run.run(60)
    first, second, *_ = run.captured
    assert 10 <= first <= 17 and second - first <= 10, "of 1000 steps an epoch"
    policy = run.ranks[0].policy
    assert run.intervals[0][1] == policy.interval >= 4, "0.02 s of a step of 0.1 s are 5 % of four steps"
    assert policy.reason().name == "profile"
    assert policy.reason().profile.iteration == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize(
    ("costs", "reason"),
    [
        (Costs(copy=from_step(500, 0.02, 0.1)), "copy"),
        (Costs(iteration=from_step(500, 0.1, 0.02)), "training"),
        (Costs(copy=from_step(500, 0.2, 0.005)), "slack"),
        (
            Costs(writing=from_step(500, 0.02, 0.2), persist=from_step(500, 0.1, 1.0), copy=lambda step: 0.0),
            "store",
        ),
        (Costs(copy=lambda step: 1e-4, persist=from_step(500, 0.1, 3.0)), "store"),
    ],
    ids=["copy", "training", "slack", "store", "store-that-costs-nothing"],
)
def test_each_change_has_its_reason(costs, reason):
    run = training(costs)
    run.run(490)
    before = run.ranks[0].policy.interval
    names = set()
    for _ in range(2000):
        run.run(1)
        if run.ranks[0].policy.interval != before:
            names.add(run.ranks[0].policy.reason().name)
            break
    after = run.ranks[0].policy.interval
    assert names == {reason} and (after < before) == (reason == "slack")


@pytest.mark.parametrize(
    ("costs", "overhead"),
    [
        (Costs(lambda step: 0.6, lambda step: 0.1, lambda step: 0.05, lambda step: 0.5, noise=0.15, cpu=0.02), 0.05),
        (Costs(lambda step: 0.2, lambda step: 0.02, lambda step: 0.03, lambda step: 0.3, noise=0.08, cpu=0.004), 0.05),
    ],
    ids=["large-model", "short-steps"],
)
def test_the_budget_is_kept_soon_though_the_profile_was_misled(costs, overhead):
    """A checkpoint takes a quarter of a step, which is within the noise of two probes, and its CPU time tells of much less."""
    found = []
    for seed in range(20):
        run = training(costs, overhead, seed=seed)
        run.run(140)
        found.append(overhead_of(run, 200))
    assert sum(found) / len(found) <= overhead, found


def test_a_slower_training_does_not_count_as_overhead():
    run = training(Costs(iteration=from_step(500, 0.1, 0.3), copy=lambda step: 0.02))
    run.run(490)
    before = run.ranks[0].policy.interval
    run.run(1000)
    assert run.ranks[0].policy.interval <= before and run.ranks[0].policy.newest.overhead < 0.05


def test_an_interval_at_most_doubles_at_once():
    run = training(Costs(copy=from_step(500, 0.02, 2.0)))
    run.run(4000)
    lengths = [interval for _, interval in run.intervals]
    assert max(b / a for a, b in itertools.pairwise(lengths)) <= 2.0 and lengths[-1] >= 8 * lengths[0]


@pytest.mark.slow
@holds(
    costs=st.lists(st.tuples(st.floats(0.001, 0.2), st.floats(0.01, 1.0)), min_size=4, max_size=4),
    seed=st.integers(0, 99),
    examples=6,
)
def test_all_ranks_capture_the_same_steps_whatever_each_measures(costs, seed):
    """Each rank has copies and a store of its own speed, and noise of its own. The rank that needs the longest interval decides."""
    ranks = [Costs(copy=lambda step, c=c: c, persist=lambda step, p=p: p, noise=0.03) for c, p in costs]
    run = training(ranks, ranks=4, seed=seed)
    run.run(1500)
    assert len({rank.policy.interval for rank in run.ranks}) == 1
    assert run.ranks[0].policy.interval >= max(c for c, _ in costs) / 0.1 / 0.05 * 0.4


def kept(run):
    """What plan.json has of a training, by way of the file."""
    policy = run.ranks[0].policy
    step, interval = run.intervals[-1]
    policy.decided(Decided(step, None, interval, policy.reason().name, 0), policy.reason())
    return json.loads(json.dumps(policy.plan().to_json()))


def test_a_resumed_job_does_not_profile_again():
    run = training(Costs(copy=lambda step: 0.02))
    run.run(500)
    policy = begun(Auto(0.05), kept(run))
    again = Training([Rank(policy, Costs(copy=lambda step: 0.02))], step=500)
    again.run(5)
    assert policy.interval == run.ranks[0].policy.interval and policy.reason().name == "resumed"
    again.run(100)
    assert again.captured[0] <= 503 + policy.interval and policy.ended() is None
    assert [one.step for one in AutoSection.from_json(kept(again)).windows][: len(run.intervals)], "the history goes on"


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (Conditions("cd" * 32, 1, 2.0, "memory"), "other tensors"),
        (Conditions("ab" * 32, 4, 2.0, "memory"), "the number of ranks was 1 and is 4"),
        (Conditions("ab" * 32, 1, 8.0, "memory"), "cores"),
        (Conditions("ab" * 32, 1, 2.0, "disk"), "local tier"),
    ],
    ids=["structure", "ranks", "cores", "tier"],
)
def test_other_conditions_are_profiled_again_and_it_is_said_why(other, why):
    run = training(Costs(copy=lambda step: 0.02))
    run.run(500)
    policy = Auto(0.05)
    level, message = policy.begin(other, 2, 0, kept(run))
    assert level == "info" and "profiled again" in message and why in message
    assert policy.interval == 0 and policy.next_step(0) == NEVER and policy.ended() is not None


def test_another_budget_goes_on_from_the_stored_profile():
    run = training(Costs(copy=lambda step: 0.02))
    run.run(500)
    policy = begun(Auto(0.01), kept(run))
    again = Training([Rank(policy, Costs(copy=lambda step: 0.02))], step=500)
    again.run(5)
    assert policy.interval >= 4 * run.ranks[0].policy.interval


@pytest.mark.parametrize("damage", [{}, {"key": {}}, {"key": 3, "profile": []}], ids=["empty", "no-key", "types"])
def test_a_section_that_makes_no_sense_is_profiled_again(damage):
    policy = Auto()
    level, message = policy.begin(HERE, 2, 0, damage)
    assert level == "warning" and "profiled again" in message and policy.ended() is not None


def test_known_failures_bound_how_often_checkpoints_are_taken():
    often, rare = (training(Costs(copy=lambda step: 0.02), mtbf=mtbf) for mtbf in (1.0, 10**6))
    for run in (often, rare):
        run.run(300)
    assert rare.ranks[0].policy.reason().name == "failures" and rare.ranks[0].policy.interval >= 1900
    assert often.ranks[0].policy.reason().name != "failures" and often.ranks[0].policy.interval < 100


def test_an_interval_has_the_steps_of_an_execution_at_least():
    """An execution gives one checkpoint."""
    policy = begun(Auto())
    policy._longest_execution = 32
    run = Training([Rank(policy, Costs(copy=lambda step: 1e-4, persist=lambda step: 0.01))])
    run.run(200)
    assert policy.interval == 32


def test_a_training_that_is_too_short_says_so():
    run = training(Costs())
    run.run(5)
    assert (
        run.ranks[0].policy.ended().startswith("every=Auto(overhead=0.05): the training ended before an interval was")
    )
    assert run.captured == []


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "3%", None, float("nan")])
def test_a_wrong_overhead_is_refused(wrong):
    with pytest.raises(OptionError, match=r"Auto\(overhead\): expected a fraction, more than 0 and at most 1; found"):
        Auto(overhead=wrong)


@pytest.mark.parametrize("wrong", [0, -5, "1h", float("inf")])
def test_a_wrong_mtbf_is_refused(wrong):
    with pytest.raises(OptionError, match=r"Auto\(mtbf\): expected seconds, more than 0; found"):
        Auto(mtbf=wrong)


def test_the_word_auto_stands_for_the_policy():
    assert str(as_policy("auto")) == "Auto(overhead=0.035)" and str(Auto(0.1, 3600)) == "Auto(overhead=0.1, mtbf=3600)"


def test_a_fit_that_goes_back_to_an_older_step_is_saved_too():
    """A user sets the optimizer's count of steps back, or trains with a new optimizer: what was agreed on later does not hold there."""
    run = training(Costs(copy=lambda step: 0.02))
    run.run(500)
    policy = run.ranks[0].policy
    assert policy.begin(HERE, 2, 100, None) is None
    assert policy.next_step(100) == 100 + policy.interval, "the same training goes on with its interval"
    _, message = policy.begin(Conditions("cd" * 32, 1, 2.0, "memory"), 2, 0, None)
    assert message.endswith("has other tensors than before")
    assert policy.next_step(0) == NEVER and policy.interval == 0 and policy.plan() is None


def test_what_was_under_way_in_the_last_fit_is_not_awaited():
    policy = begun(Auto(0.05))
    first = Training([Rank(policy, Costs(persist=lambda step: 1e9))])
    first.run(20)
    assert len(first.captured) == 1, "a probe that is never committed"
    begun(policy)
    second = Training([Rank(policy, Costs(copy=lambda step: 0.02))], step=20)
    second.run(60)
    assert policy.interval >= 4


def test_checkpoints_of_other_policies_do_not_lengthen_the_interval():
    """``EverySteps(5)`` alone costs more than the budget: another interval would change nothing."""
    policy = Auto(0.02)
    begun(policy)
    run = Training([Rank(FirstOf(policy, 5), Costs(copy=lambda step: 0.02))])
    run.run(3000)
    assert policy.interval <= 12, "ten steps are what the budget allows"
    assert len(policy._commits) <= 8, "what a window has seen is forgotten with it"


def test_after_failed_probes_the_next_one_comes_later_and_later():
    run = training(Costs(fails=True))
    run.run(1000)
    assert 3 <= len(run.captured) <= 9 and run.ranks[0].policy.interval == 0
    assert "0 of 2 checkpoints that it times were committed" in run.ranks[0].policy.ended()


@pytest.mark.parametrize("uncommitted", [2, 4])
def test_noise_does_not_lengthen_an_interval_that_commits_decide(uncommitted):
    """A commit takes 20 steps and costs next to nothing; so no step is without one."""
    costs = Costs(copy=lambda step: 0.001, persist=lambda step: 2.0, noise=0.1)
    run = training(costs, overhead=0.035, uncommitted=uncommitted, seed=3)
    run.run(3000)
    assert run.ranks[0].policy.interval <= 1.5 * 20 / uncommitted + 1


def test_one_slow_commit_of_a_probe_does_not_decide():
    slow = iter([6.0])
    run = training(
        Costs(copy=lambda step: 0.02, persist=lambda step, found={}: found.setdefault(step, next(slow, 0.05)))
    )
    run.run(200)
    assert run.intervals[0][1] < 10


def test_a_profile_of_long_steps_ends_after_a_minute():
    run = training(Costs(iteration=lambda step: 20.0, copy=lambda step: 1.0))
    run.run(30)
    assert run.captured[0] <= 16, "eight steps, and not a hundredth of an epoch"


def test_a_plan_with_an_endless_interval_is_not_taken_over():
    run = training(Costs(copy=lambda step: 0.02))
    run.run(500)
    policy = begun(Auto(0.05), {**kept(run), "interval": 2**55})
    again = Training([Rank(policy, Costs(copy=lambda step: 0.02))], step=500)
    again.run(5)
    assert policy.interval <= 10


def test_two_policies_that_choose_an_interval_are_refused():
    with pytest.raises(
        OptionError, match=r"every=: expected one policy at most that chooses an interval by measurement; found 2"
    ):
        chosen_policy(FirstOf(Auto(), FirstOf("epoch", "auto")), ())
