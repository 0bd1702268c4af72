"""When it is time for the last checkpoint of a job."""

from hypothesis import strategies as st

from deepfreeze.plan.job_end import JobEnd
from tests.support.properties import holds


def simulated(ends_at, commit=None, unfinished=0):
    """A ``JobEnd`` in a time of its own, and a function by which so many seconds pass in an execution."""
    now = [0.0]
    end = JobEnd(ends_at, 0.0, 0.0)
    if commit is not None:
        end.committed([commit / 2, commit, -1.0])

    def execute(seconds):
        now[0] += seconds
        end.execution_ended(now[0])
        return end.near(now[0], now[0], range(unfinished))

    return execute, now


@holds(
    ends_at=st.floats(10, 1000),
    longest=st.floats(0.01, 20),
    seconds=st.lists(st.floats(0.1, 3), min_size=1, max_size=16),
    unfinished=st.integers(0, 3),
)
def test_the_last_checkpoint_lands_before_the_wall(ends_at, longest, seconds, unfinished):
    """If no step and no commit takes longer than the longest so far, or a commit half as long again, and the ranks hear of it one execution
    later; also behind checkpoints that are not committed yet."""
    execute, now = simulated(ends_at, longest, unfinished)
    commits = 1.5 * longest * (1 + unfinished)
    number = 0
    while not execute(seconds[number % len(seconds)]):
        number += 1
    # All but a start so late that not even the first execution leaves time.
    if number > len(seconds):
        assert now[0] + max(seconds) + commits < ends_at
    assert now[0] >= ends_at - commits - 3 * max(seconds) - 1.01, "and not much sooner than needed"


def test_a_minute_is_kept_free_before_anything_is_known_of_commits():
    execute, now = simulated(1000.0)
    while not execute(10):
        pass
    assert now[0] == 920, "a minute, two executions and a second"


def test_at_most_a_tenth_of_the_time_is_kept_free_for_the_first_commit():
    """Or short jobs would never come further."""
    execute, now = simulated(100.0)
    while not execute(1):
        pass
    assert now[0] == 87


def test_the_first_execution_which_traces_says_nothing_of_the_others():
    execute, _ = simulated(1000.0, commit=10)
    assert not execute(500) and not execute(1)


def test_a_commit_that_takes_longer_than_all_before_is_seen_to_do_so():
    """The last checkpoint's commit comes behind it, and may take as long."""
    end = JobEnd(1000.0, 0.0, 0.0)
    end.committed([10.0])
    end.saved(5, 100.0)
    end.saved(6, 300.0)
    assert not end.near(390.0, 390.0, [5]) and end.near(410.0, 410.0, [5])
    assert not end.near(410.0, 410.0, [6]), "the older one is committed, and the newer one not yet"
    assert not end.near(410.0, 410.0, []), "both are"


def test_what_one_fit_has_found_of_commits_the_next_one_knows():
    assert JobEnd(1000.0, 0.0, 0.0, longest=400.0).near(399.0, 0.0, ())
    assert not JobEnd(1000.0, 0.0, 0.0, longest=400.0).near(398.0, 0.0, ())


def test_a_job_without_an_end_has_none():
    execute, _ = simulated(None)
    assert not execute(1e9)
