"""What is left of a ``fit`` whose job was killed follows from the checkpoint's position and from what ``fit`` is asked for."""

from dataclasses import astuple, replace

import pytest

from deepfreeze.format.position import Position
from deepfreeze.plan.epochs import Fit, GoingOn, going_on, going_on_in_data, other_batches

FIT = Fit(epochs=4, batches=30, begins_at=0)
AT_40 = Position(fit=0, epoch=1, batch=10, batches=30, epochs=4, trained=40)


def test_finished_epochs_are_not_repeated_and_the_last_one_is_cut():
    assert Fit(4, 30, 0, begun=None, late=False, inside=False) == FIT
    # By each field: what is compared with another ``GoingOn`` has its defaults.
    assert astuple(going_on(AT_40, 0, FIT)) == (1, 40, 120, False, False, 0, False, False)
    at_60 = replace(AT_40, batch=30, trained=60)
    assert going_on(at_60, 0, FIT) == GoingOn(epoch=2, trained=60, total=120)


def test_a_fit_that_is_finished_trains_nothing_unless_it_has_more_epochs():
    finished = replace(AT_40, epoch=3, batch=30, trained=120)
    assert going_on(finished, 0, FIT) == GoingOn(epoch=4, trained=120, total=120, finished=True)
    assert going_on(finished, 0, replace(FIT, epochs=5)) == GoingOn(epoch=4, trained=120, total=150)
    assert going_on(finished, 0, replace(FIT, epochs=2)) == GoingOn(epoch=2, trained=60, total=60, finished=True)


@pytest.mark.parametrize("length", [7, 29, 31, 50])
def test_kills_in_every_epoch_do_not_hold_up_the_epochs(length):
    """Each attempt makes so many steps. The epoch that it begins with is the one in which an uninterrupted fit would be."""
    trained, seen = 0, []
    while trained < 120:
        position = Position(0, seen[-1] if seen else 0, 0, 30, 4, trained)
        plan = going_on(position, 0, FIT)
        assert plan is not None and plan.epoch == trained // 30
        seen.append(plan.epoch)
        trained += min(length, plan.total - plan.trained)
    assert trained == 120 and seen[-1] == 3


def test_an_earlier_fit_of_the_program_trains_nothing():
    second = replace(AT_40, fit=1)
    assert going_on(second, 0, replace(FIT, batches=None)) == GoingOn(4, 0, 0, finished=True)
    assert going_on(second, 1, FIT) == GoingOn(epoch=1, trained=40, total=120)
    assert going_on(second, 2, FIT) is None
    assert going_on_in_data(second, 0, FIT, False, 1, 7, True) == GoingOn(4, 0, 0, finished=True, exact=True)
    assert going_on_in_data(second, 2, FIT, False, 1, 7, True) is None


def test_a_fit_that_a_callback_has_ended_stays_ended():
    ended = {"finished": True, "stopped": True}
    assert going_on(AT_40, 0, FIT, stopped=True) == GoingOn(4, 0, 0, **ended)
    assert going_on_in_data(AT_40, 0, FIT, True, 1, 7, True) == GoingOn(4, 0, 0, **ended, exact=True)


def test_an_epoch_goes_on_also_before_its_first_whole_batch():
    """The job before had smaller batches. What is left of the epoch has as many batches as a whole epoch of this job."""
    inside = replace(FIT, batches=20, inside=True)
    assert going_on_in_data(AT_40, 0, inside, False, 1, 0, True) == GoingOn(1, 20, 80, batch=0, exact=True, begun=True)
    assert going_on_in_data(AT_40, 0, inside, False, 1, 7, True) == GoingOn(1, 27, 80, batch=7, exact=True, begun=True)
    assert going_on_in_data(AT_40, 0, inside, False, 2, 0, False) == GoingOn(2, 40, 80, exact=True)
    assert going_on_in_data(AT_40, 0, inside, False, 4, 0, False) == GoingOn(4, 80, 80, finished=True, exact=True)
    from_the_first = going_on_in_data(AT_40, 0, replace(FIT, batches=20), False, 1, 7, True)
    assert from_the_first == GoingOn(1, 20, 80, exact=True), "this Keras can't begin inside of an epoch"


@pytest.mark.parametrize("change", [{"begins_at": 1}, {"begins_at": None}, {"batches": None}, {"batches": 20}])
def test_what_can_not_be_known_changes_nothing(change):
    assert going_on(AT_40, 0, replace(FIT, **change)) is None
    assert going_on(None, 0, FIT) is None
    assert going_on(replace(AT_40, batches=None), 0, FIT) is None
    assert other_batches(AT_40, 0, replace(FIT, **change)) == (change == {"batches": 20})
    assert not other_batches(None, 0, FIT) and not other_batches(replace(AT_40, batches=None), 0, FIT)
    assert not other_batches(AT_40, 1, replace(FIT, **change))


@pytest.mark.parametrize(
    ("change", "known"), [({"begins_at": 1}, True), ({"begins_at": 2}, False), ({"batches": None}, False)]
)
def test_data_go_on_in_their_epoch_or_not_at_all(change, known):
    """``initial_epoch`` may name the epoch that goes on."""
    assert (going_on_in_data(AT_40, 0, replace(FIT, **change), False, 1, 7, True) is not None) == known
    assert going_on_in_data(None, 0, FIT, False, 1, 7, True) is None


@pytest.mark.parametrize("change", [{"epoch": -1}, {"epochs": "4"}, {"fit": True}, {"trained": None}, {"batches": 1.5}])
def test_a_position_of_an_unknown_form_is_no_position(change):
    values = {"position": {**AT_40.to_json(), "from the future": 1}}
    assert Position.of(values) == AT_40
    assert Position.of({"position": {**AT_40.to_json(), "batches": None}}) == replace(AT_40, batches=None)
    assert Position.of({"position": {**AT_40.to_json(), **change}}) is None
    assert Position.of({}) is None and Position.of({"position": 3}) is None and Position.of({"position": {}}) is None
