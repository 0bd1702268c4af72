"""Policies that learn, on two Horovod ranks: each rank wishes, all capture the same steps."""

import pytest

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]
# Rank 1 wishes for 3 at step 2, rank 0 for 2 at step 2 and for 5 at step 9.
WISHES = [{"2": 2, "9": 5}, {"2": 3}]


def test_ranks_agree_on_the_greatest_wish_from_the_armed_step_on(two, tmp_path):
    """What is wished for after step 2 is agreed on in step 3, when step 4 is the target; the second wish when step 13 is."""
    first, second = two.run("wishes", folder=tmp_path, steps=24, wishes=WISHES)
    assert first == second and first["error"] is None
    assert first["steps"] == [4, 7, 10, 15, 20]
    assert first["decisions"] == [[4, None, 3], [10, 3, 5]]
    assert first["seen"] == 24


def test_a_hand_written_loop_agrees_where_its_ranks_meet(two, tmp_path):
    first, second = two.run("wishes", folder=tmp_path, steps=24, wishes=WISHES, loop=True)
    assert first == second and first["error"] is None
    assert [after for _, _, after in first["decisions"]] == [3, 5]
    (begin, _, _), (then, _, _) = first["decisions"]
    regular = [*range(4, begin + 1, 4), *range(begin + 3, then + 1, 3), *range(then + 5, 25, 5)]
    assert first["steps"] == regular


@pytest.mark.full
def test_a_policy_that_fails_on_one_rank_ends_all_after_the_same_step(two, tmp_path):
    first, second = two.run("wishes", folder=tmp_path, steps=400, wishes=[{}, {}], fails=1)
    assert first["last"] == second["last"] < 10
    assert "OptionError: every=" in second["error"] and "Wishing.observe(): ValueError: no idea" in second["error"]
    assert "rank 1" in first["error"]
