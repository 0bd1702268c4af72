"""The retention rule of the guide's page "Extend it": which checkpoints it wants, and what a real training removes by it."""

import time
from dataclasses import replace

import pytest

import deepfreeze
from deepfreeze.store import Committed, History, Latest, judge
from tests.extending.aging import DAY, HOUR, Aging

NOW = 20_000 * DAY + 15 * HOUR + 600  # ten minutes past three in the afternoon


def checkpoints(*ages):
    """One checkpoint for each age in seconds, the oldest first."""
    return tuple(Committed(step=step, time=NOW - age) for step, age in enumerate(ages, 1))


def kept(rule, there):
    return judge(History(there), rule).keep


def test_checkpoints_thin_out_with_age():
    there = checkpoints(3 * DAY + 60, 3 * DAY, 2 * DAY, DAY + 60, 3 * HOUR + 60, 3 * HOUR, 2 * HOUR, HOUR - 1, 60, 0)
    assert kept(Aging(), there) == {
        1: "first of its day",
        3: "first of its day",
        4: "first of its day",
        5: "first of its hour",
        7: "first of its hour",
        8: "recent",
        9: "recent",
        10: "newest; recent",
    }
    assert list(kept(Aging(full=4), there)) == [1, 3, 4, 5, 6, 7, 8, 9, 10]
    assert list(kept(Aging(full=0, hourly=0), there)) == [1, 3, 4, 5, 10]


def test_asked_after_each_commit_the_same_ones_stay():
    """What was removed meanwhile is not missed at the end, and no hour and no day is left without its checkpoint."""
    everything = checkpoints(*range(4 * DAY, 0, -7 * 60))
    there = ()
    for one in everything:
        keep = kept(Aging(), (*there, one))
        there = tuple(old for old in (*there, one) if old.step in keep)
    assert [one.step for one in there] == list(kept(Aging(), everything))
    assert {one.time // DAY for one in there} == {one.time // DAY for one in everything}
    assert len({one.time // HOUR for one in there if NOW - one.time < DAY}) == 24
    assert len(there) == 4 + 24 + 8  # days, hours, the last hour


def test_the_rule_joins_others_and_its_text_has_its_arguments():
    assert repr(Aging(full=2) | Latest(3)) == "Aging(full=2, hourly=1) | Latest(3)"
    assert kept(Aging(full=0, hourly=0) | Latest(2), checkpoints(9, 6, 3, 0)).keys() == {1, 3, 4}
    assert kept(Aging(), ()) == {}
    with pytest.raises(ValueError, match="25 full hours"):
        Aging(full=25)


@pytest.mark.full
@pytest.mark.tensorflow
def test_a_job_thins_out_what_an_earlier_job_has_left(tmp_path):
    import keras

    from deepfreeze.format.marks import MarksFile
    from deepfreeze.store import marks, run
    from tests.support import trainings

    def train(steps, keep):
        model = trainings.dense(keras)
        x, y = next(iter(trainings.data(1)))
        options = {"every": 1, "keep": keep, "local": None, "wait_for": "external"}
        with deepfreeze.capture(model.optimizer, model, tmp_path / "run", **options) as checkpoint:
            for _ in range(steps):
                model.train_on_batch(x, y)
                checkpoint.step()
        return [info.step for info in deepfreeze.checkpoints(tmp_path / "run")]

    assert train(6, keep=10) == [1, 2, 3, 4, 5, 6]
    there, now = run.Run.open(tmp_path / "run"), int(time.time())
    day, hour = (now // DAY - 3) * DAY, (now // HOUR - 3) * HOUR
    times = {1: day, 2: day + HOUR, 3: day + DAY, 4: hour, 5: hour + 10, 6: now}
    known = marks.read_marks(there)
    aged = tuple(replace(mark, time=times[mark.step]) for mark in known.marks)
    marks.write(there, MarksFile(known.run_id, known.rule, (), aged).to_bytes())
    assert train(2, keep=Aging()) == [1, 3, 4, 6, 7, 8]
