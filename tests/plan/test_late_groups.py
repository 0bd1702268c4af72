"""Which groups are captured late."""

import pytest

from deepfreeze.plan.epochs import Fit
from deepfreeze.plan.fit_position import FitPosition
from deepfreeze.plan.late_groups import LateGroups

EARLY, MIDDLE, END, UNKNOWN = (0.1, False), (0.79, False), (0.85, False), (-1.0, False)


@pytest.mark.parametrize(("when", "late"), [("late", {0, 1, 2}), ("auto", set())])
def test_before_the_first_capture_the_option_alone_decides(when, late):
    assert LateGroups(when, 3).late == late


def test_auto_takes_the_groups_updated_in_the_last_fifth_of_a_step():
    groups = LateGroups("auto", 4)
    groups.learn([EARLY, MIDDLE, END, UNKNOWN])
    assert groups.late == {2}
    groups.learn([END, EARLY, EARLY, EARLY])
    assert groups.late == {0}, "each capture is measured"


@pytest.mark.parametrize("when", ["late", "auto"])
def test_a_group_whose_holding_has_cost_memory_is_never_late_again(when):
    groups = LateGroups(when, 3)
    groups.learn([END, (0.9, True), END])
    assert groups.late == {0, 2}
    groups.learn([END, END, END])
    assert groups.late == {0, 2}


def test_a_group_that_has_to_stay_is_never_late_again():
    groups = LateGroups("late", 3)
    groups.stay([1])
    assert groups.late == {0, 2}
    groups.learn([EARLY, END, EARLY])
    assert groups.late == {0, 2}


def test_the_end_of_an_epoch_is_known_with_the_number_of_batches():
    for batches, over in ((3, [False, False, True]), (None, [False, False, False])):
        position = FitPosition(0, Fit(epochs=1, batches=batches, begins_at=0), None)
        found = []
        for batch in range(3):
            position.train_batch_end(batch)
            found.append(position.epoch_is_over)
        assert found == over
