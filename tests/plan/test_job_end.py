"""When it is time for the last checkpoint of a job."""

from hypothesis import strategies as st

from deepfreeze.plan.job_end import JobEnd
from tests.support.properties import holds


def simulated(ends_at, commit=None):
    """A ``JobEnd`` in a time of its own, and a function by which so many seconds pass in an execution."""
    now = [0.0]
    end = JobEnd(ends_at, 0.0)
    if commit is not None:
        end.committed([commit / 2, commit, -1.0])

    def execute(seconds):
        now[0] += seconds
        end.execution_ended(now[0])
        return end.near(now[0])

    return execute, now


@holds(
    ends_at=st.floats(10, 1000),
    longest=st.floats(0.01, 20),
    seconds=st.lists(st.floats(0.1, 3), min_size=1, max_size=16),
)
def test_the_last_checkpoint_lands_before_the_end(ends_at, longest, seconds):
    """If steps and the commit take as long as the longest so far, or a commit half as long again, and the ranks hear of it one execution
    later."""
    execute, now = simulated(ends_at, longest)
    number = 0
    while not execute(seconds[number % len(seconds)]):
        number += 1
    # All but a start so late that not even the first execution leaves time.
    if number > len(seconds):
        assert now[0] + max(seconds) + 1.5 * longest < ends_at
    assert now[0] >= ends_at - 1.5 * longest - 3 * max(seconds) - 1.01, "and not much sooner than needed"


def test_a_minute_is_kept_free_before_anything_is_known_of_commits():
    execute, _ = simulated(100.0)
    assert [execute(10) for _ in range(3)] == [False, True, True]


def test_a_job_without_an_end_has_none():
    execute, _ = simulated(None)
    assert not execute(1e9)
