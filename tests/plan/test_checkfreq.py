"""CheckFreq's Algorithm 1 as a function of measured times, with what is added to it."""

import math

from hypothesis import strategies as st

from deepfreeze.plan.checkfreq import Profile, algorithm_1
from deepfreeze.plan.never import NEVER
from tests.support.properties import holds

seconds = st.floats(1e-4, 100)
profiles = st.builds(
    Profile,
    iteration=seconds,
    update=st.floats(0, 1e-4),
    copy=seconds,
    persist=seconds,
    nbytes=st.integers(1, 2**40),
    device_copy=st.none() | seconds,
    device_used=st.integers(0, 2**40),
    device_size=st.integers(0, 2**41),
    cost=st.none() | seconds,
)


def test_the_papers_example_gives_twenty():
    """Section 4.2: a checkpoint that costs one iteration, and an overhead of 5 %."""
    terms = algorithm_1(Profile(iteration=1.0, update=0.0, copy=2.0, persist=1.0, nbytes=1), 0.05)
    assert (terms.cost, terms.by_budget, terms.interval, terms.decided_by) == (1.0, 20, 20, "budget")


@holds(profile=profiles, overhead=st.floats(0.001, 1))
def test_a_checkpoint_ends_before_the_next_and_costs_the_budget(profile, overhead):
    """The paper's three promises: one checkpoint at a time, no more overhead than asked for, and no interval longer than that takes."""
    terms = algorithm_1(profile, overhead)
    k, iteration = terms.interval, profile.iteration
    assert k * iteration >= (profile.copy + profile.persist - terms.cost) * (1 - 1e-6)
    assert terms.cost <= overhead * k * iteration * (1 + 1e-6)
    if k > 1:
        shorter = (k - 1) * iteration * (1 - 1e-6)
        assert shorter <= profile.copy + profile.persist - terms.cost or terms.cost >= overhead * shorter


@holds(profile=profiles)
def test_the_copy_goes_to_the_device_if_that_is_sooner_and_fits(profile):
    terms = algorithm_1(profile, 0.05)
    beside = max(0.0, profile.copy - (profile.iteration - profile.update))
    fits = profile.device_size - profile.device_used > profile.nbytes
    device = profile.device_copy is not None and fits and profile.device_copy <= beside
    assert terms.mode == ("device" if device else "host")
    if profile.cost is None:
        assert terms.cost == (profile.device_copy if device else beside)
    else:
        assert terms.cost == profile.cost, "a measured cost replaces the estimate"


@holds(profile=profiles, overhead=st.floats(0.001, 1), most=st.integers(2, 8))
def test_with_several_under_way_the_bound_is_pcchecks(profile, overhead, most):
    """PCcheck's (3), Tw / (N q t). The interval is never longer than with one checkpoint under way."""
    one, several = algorithm_1(profile, overhead), algorithm_1(profile, overhead, most)
    assert several.by_budget == one.by_budget and several.interval <= one.interval
    apart = (profile.copy + profile.persist) / (most * (1 + overhead) * profile.iteration)
    assert several.by_commit == max(1, math.ceil(apart - 1e-6)) or abs(apart - round(apart)) < 1e-3


@holds(profile=profiles, overhead=st.floats(0.001, 1), most=st.integers(1, 8))
def test_with_all_waits_for_commits_checkpoints_cost_no_more_than_the_budget(profile, overhead, most):
    """A training that is played: a checkpoint begins when fewer than N are under way, and costs To besides."""
    terms = algorithm_1(profile, overhead, most)
    steps = terms.interval * profile.iteration
    begun, now = [], 0.0
    for number in range(4 * most):
        oldest = begun[number - most] + profile.copy + profile.persist if number >= most else 0.0
        begun.append(max(now, oldest))
        now = begun[-1] + steps + terms.cost
    apart = (begun[-1] - begun[-1 - most]) / most
    assert apart <= (1 + overhead) * steps * (1 + 1e-6)


@holds(cost=st.floats(1e-3, 100), mtbf=st.floats(1, 1e7))
def test_dalys_interval_loses_less_time_than_longer_or_shorter_ones(cost, mtbf):
    """Time lost per second of work: the checkpoints, and after a failure half an interval and a checkpoint (Daly, to first order)."""
    iteration = 1e-3
    profile = Profile(iteration=iteration, update=0.0, copy=0.0, persist=0.0, nbytes=1, cost=cost)
    best = algorithm_1(profile, 1.0, mtbf=mtbf).by_failures * iteration
    if cost >= 2 * mtbf:
        assert abs(best - mtbf) <= 2 * iteration
    elif cost < mtbf / 50:

        def lost(interval):
            return math.expm1((interval + cost) / mtbf) / interval  # Daly's equation 13, without its constants

        assert lost(best) <= min(lost(best * 1.1), lost(best * 0.9))


def test_the_longer_interval_of_budget_and_failures_is_taken():
    profile = Profile(iteration=1.0, update=0.0, copy=0.0, persist=0.0, nbytes=1, cost=1.0)
    rare, often = algorithm_1(profile, 0.05, mtbf=10**6), algorithm_1(profile, 0.05, mtbf=100.0)
    assert (rare.decided_by, rare.interval) == ("failures", rare.by_failures) and rare.interval > 1000
    assert (often.decided_by, often.interval) == ("budget", 20) and often.by_failures < 20


def test_quotients_that_should_be_whole_are_not_rounded_up():
    profile = Profile(iteration=1.0, update=0.0, copy=0.0, persist=0.0, nbytes=1, cost=0.35)
    assert algorithm_1(profile, 0.035).interval == 10
    assert algorithm_1(Profile(1e-9, 0.0, 0.0, 0.0, 1, cost=1e12), 1e-3).interval == NEVER
