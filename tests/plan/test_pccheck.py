"""The search for an engine's setting, on simulated stores with a known optimum; and the orders by which ranks try a setting together."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st

from deepfreeze.plan.pccheck import MOST_CHECKPOINTS, Search, Setting, Taken, Tried, best_of, result
from deepfreeze.plan.trial_order import TrialOrder
from tests.support.properties import holds
from tests.support.simulated_store import Speed, pace, searched, tried

MOST = Setting(writers=8, transfers=8, uncommitted=6)
# store -> its best setting: writers, transfers, uncommitted; and why the search ends.
KNOWN = {
    "one writer fills it, and the engine has eight": (Speed(work=0.2, writers=1), Setting(8, 1, 1), "gain"),
    "four writers fill it": (Speed(work=0.2, writers=4), Setting(8, 1, 1), "gain"),
    "eight writers fill it": (Speed(work=0.2, writers=8), Setting(8, 1, 1), "gain"),
    "commits take as long as transfers": (Speed(work=0.1, commit=0.1), Setting(8, 1, 2), "gain"),
    "three stages take equally long": (Speed(work=0.1, publish=0.1, commit=0.1), Setting(8, 1, 3), "gain"),
    "each call has a long way": (Speed(work=0.01, latency=1.0), Setting(8, 4, 4), "checkpoints"),
    "a long way, and room for two": (Speed(work=0.01, latency=1.0, fits=2), Setting(8, 2, 2), "store"),
}


@pytest.mark.parametrize("name", KNOWN)
def test_the_tuner_finds_the_best_of_a_known_store(name):
    speed, best, why = KNOWN[name]
    search = searched(speed, MOST)
    assert search.best.setting == best
    assert search.ended == why
    if speed.fits > 4:
        fastest = min(pace(speed, Setting(8, t, n)) for n in range(1, 5) for t in range(1, n + 1))
        assert pace(speed, best) <= 1.1 * fastest, "the table above is right"


speeds = st.builds(
    Speed,
    work=st.floats(0.01, 0.5),
    writers=st.sampled_from([1, 2, 4, 8]),
    latency=st.sampled_from([0.0, 0.05, 0.4, 1.0]),
    publish=st.sampled_from([0.0, 0.1, 0.3]),
    commit=st.sampled_from([0.0, 0.05, 0.5]),
)


@holds(speed=speeds, examples=30)
def test_no_setting_is_much_faster_than_the_one_that_is_found(speed):
    """Each number of uncommitted checkpoints may hide 5 %, and so may the writers. A short trial takes several transfers for slower than
    they are, because the time in which the engine fills is in it."""
    found = searched(speed, replace(MOST, uncommitted=4)).best.setting
    fastest = min(pace(speed, Setting(8, t, n)) for n in range(1, 5) for t in range(1, n + 1))
    assert pace(speed, found) <= 1.7 * fastest


@holds(speed=speeds, most=st.builds(Setting, st.integers(1, 16), st.integers(1, 8), st.integers(1, 8)), examples=30)
def test_a_search_keeps_to_its_limits_and_its_checkpoints(speed, most):
    search, taken = Search(most), 0
    while (trial := search.trial) is not None:
        taken += trial.checkpoints
        setting = trial.setting
        assert setting.writers <= most.writers and setting.uncommitted <= most.uncommitted
        assert setting.transfers <= min(most.transfers, setting.uncommitted)
        search.add(tried(speed, trial))
    assert taken <= MOST_CHECKPOINTS
    assert search.best in search.tried and search.best.setting.uncommitted <= most.uncommitted


def test_more_transfers_are_not_chosen_where_they_are_no_faster():
    for search in (searched(Speed(work=0.2, writers=2), MOST), searched(Speed(work=0.1, commit=0.1), MOST)):
        assert any(one.setting.transfers > 1 for one in search.tried), "they were tried"
        assert search.best.setting.transfers == 1


def test_one_checkpoint_is_left_waiting_where_a_newer_one_may_replace_it():
    search = searched(Speed(work=0.01, latency=1.0), MOST, behind=1)
    assert all(one.setting.transfers < max(2, one.setting.uncommitted) for one in search.tried)
    assert search.best.setting == Setting(8, 4, 5)


def told(search, period, stall=0.0):
    """Tells the search that each of its trials takes so long a checkpoint."""
    trials = []
    while (trial := search.trial) is not None:
        trials.append(trial)
        n = trial.setting.uncommitted
        search.add(Tried(trial.setting, trial.checkpoints, period(n), n * period(n), n, stall))
    return trials


def test_a_search_ends_when_it_has_taken_too_much_time():
    search = Search(MOST, iteration=0.1, time=4.0)
    trials = told(search, lambda n: 10.0 / n, stall=0.5)
    assert search.ended == "time" and len(trials) == 9
    assert trials[-1].checkpoints == 2, "a trial that would wait takes no more than fill the engine"
    assert search.best.setting.uncommitted == 2


def test_more_than_one_is_not_tried_where_commits_are_faster_than_steps():
    search = Search(MOST, iteration=0.1)
    trials = told(search, lambda n: 0.05)
    assert search.ended == "steps" and {trial.setting.uncommitted for trial in trials} == {1}


def test_a_trial_that_did_not_fill_the_engine_shows_nothing():
    search = Search(MOST)
    while search.trial is not None:
        trial = search.trial
        search.add(Tried(trial.setting, trial.checkpoints, 1.0 / trial.setting.uncommitted, 1.0, 1))
    assert search.ended == "steps" and search.best.setting.uncommitted == 1


def test_a_failed_trial_leaves_what_was_found_before():
    search = Search(MOST)
    while search.trial.setting.uncommitted < 3:
        n = search.trial.setting.uncommitted
        search.add(Tried(search.trial.setting, search.trial.checkpoints, 1.0 / n, 1.0, n))
    search.fail()
    assert (search.trial, search.ended) == (None, "store")
    assert search.best.setting.uncommitted == 2
    first = Search(MOST)
    first.fail()
    assert first.best is None


def test_the_result_of_a_trial():
    two = Setting(1, 1, 2)
    # From the third one on each is handed over at a commit, and committed two commits later.
    steady = [Taken(0.0, 1, 1.0), Taken(0.0, 2, 2.0), Taken(1.0, 2, 2.0), Taken(2.0, 2, 2.0)]
    assert result(two, steady) == Tried(two, 4, period=1.0, commit=2.0, under_way=2)
    # Handed over half a step too late, so that Tw is short: the commits tell.
    late = [Taken(0.0, 1, 1.0), Taken(0.0, 2, 2.0), Taken(1.5, 2, 1.5), Taken(2.5, 2, 1.5)]
    assert result(two, late).commit == 2.0
    # Both were committed at once, so no later one has found one on its way.
    together = [Taken(0.0, 1, 1.0), Taken(0.0, 2, 1.0), Taken(1.0, 1, 1.0), Taken(1.0, 2, 1.0)]
    assert result(two, together[:3]).period == 0.5
    assert best_of([]) is None


def test_an_order_is_one_number_of_which_the_newest_is_the_greatest():
    settings = [Setting(1, 1, 1), Setting(256, 64, 2048)]
    orders = [
        TrialOrder(n, setting, c, a) for n in (1, 2, 4095) for setting in settings for c in (0, 38) for a in (1, 65535)
    ]
    words = [order.word for order in orders]
    assert [TrialOrder.of(word) for word in words] == orders
    assert all(0 < word < 2**62 for word in words)
    assert max(order.word for order in orders if order.number == 1) < min(o.word for o in orders if o.number == 2)


def test_the_checkpoints_of_an_order():
    order, due, step = TrialOrder(1, Setting(1, 1, 2), checkpoints=3, apart=4), [], 0
    while (step := order.next_step(10, step)) is not None:
        due.append(step)
    assert due == [14, 18, 22] and order.last_step(10) == 22
    assert order.next_step(10, 16) == 18
