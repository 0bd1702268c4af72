"""Which part of the ranks' weights is compared at which checkpoint."""

import pytest

from deepfreeze.plan.comparisons import WHOLE, Compared, Comparisons


@pytest.mark.parametrize("parts", [1, 3, 64])
def test_two_whole_comparisons_are_followed_by_one_part_after_the_other(parts):
    comparisons = Comparisons(parts)
    assert comparisons.begins
    found = [comparisons.next(False)]
    assert comparisons.begins
    found += [comparisons.next(False) for _ in range(1 + 2 * parts)]
    assert not comparisons.begins and found[:2] == [WHOLE, WHOLE]
    assert found[2:] == [Compared(number, parts) for number in range(parts)] * 2


def test_without_parts_only_the_first_two_are_compared():
    comparisons = Comparisons(0)
    assert [comparisons.next(known) for known in (False, True, True, False)] == [WHOLE, WHOLE, None, None]


def test_while_a_difference_is_known_everything_is_compared():
    comparisons = Comparisons(4)
    known = [False, False, False, True, True, False, False]
    found = [comparisons.next(one) for one in known]
    assert found[2:] == [Compared(0, 4), WHOLE, WHOLE, Compared(1, 4), Compared(2, 4)]


def test_what_a_checkpoint_that_was_given_up_did_not_compare_comes_next():
    comparisons = Comparisons(3)
    first = comparisons.next(False)
    comparisons.give_back(first)
    assert comparisons.begins and [comparisons.next(False), comparisons.next(False)] == [WHOLE, WHOLE]
    assert comparisons.next(False) == Compared(0, 3)
    comparisons.give_back(Compared(0, 3))
    assert [comparisons.next(False) for _ in range(4)] == [
        Compared(0, 3),
        Compared(1, 3),
        Compared(2, 3),
        Compared(0, 3),
    ]
    comparisons.give_back(comparisons.next(True))  # everything, because a difference is known
    comparisons.give_back(None)
    assert comparisons.next(False) == Compared(1, 3) and not comparisons.begins
