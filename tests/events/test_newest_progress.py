"""The end of a running job's file of events says how far its checkpoints are."""

import dataclasses
import json

import pytest

from deepfreeze.events import End, External, Failed, Progress, Unfinished
from deepfreeze.events.newest_progress import _TAIL, newest_progress
from deepfreeze.format import names
from deepfreeze.store.run import Run
from tests.support import files

ATTEMPT = "ab" * 16


def one(step, **more):
    own = {
        "level": "local",
        "nbytes": 100,
        "local": 100,
        "external": 40,
        "published": False,
        "seconds": 1.5,
        "waits_for": "",
    }
    return Unfinished(step, **{**own, **more})


@pytest.fixture
def running(tmp_path):
    """A function that adds lines to the events of the attempt that has the run, and returns what is found then."""
    run = Run.open(files.write_run(tmp_path / "run"))
    (run.path / names.OWNER_FILE).write_text(f"{ATTEMPT}\n")
    file = run.path / names.EVENTS_DIR / names.events_file(ATTEMPT)
    file.parent.mkdir()

    def write(*given):
        with open(file, "a") as f:
            for event in given:
                f.write(event if isinstance(event, str) else json.dumps(event.to_json(0.0)) + "\n")
        return newest_progress(run)

    return write


def test_the_newest_event_counts_without_what_has_ended_since(running):
    first, second = Progress(unfinished=(one(5),), t=1), Progress(unfinished=(one(5), one(10), one(15)), t=2)
    assert running() is None
    found = running(first, second)
    assert (found.attempt, found.t, found.unfinished) == (ATTEMPT, 2, second.unfinished)
    found = running(
        External(step=5, seconds=1.0, written=0.5), Failed(step=10, message="", raised=False, reported=True)
    )
    assert found.unfinished == (one(15),)
    assert running(External(step=15, seconds=1.0, written=0.5)) is None


def test_an_attempt_that_has_ended_has_nothing_on_its_way(running):
    assert running(Progress(unfinished=(one(5),))) is not None
    assert running(End(finished=False)) is None


def test_a_run_without_events_or_owner_says_nothing(tmp_path):
    run = Run.open(files.write_run(tmp_path / "run"))
    assert newest_progress(run) is None
    (run.path / names.OWNER_FILE).write_text(f"{ATTEMPT}\n")
    assert newest_progress(run) is None


def test_what_is_no_progress_is_passed_over(running):
    wrong = [
        3,
        {},
        [],
        "x",
        {**dataclasses.asdict(one(5)), "step": "5"},
        {**dataclasses.asdict(one(5)), "later": 1},
        None,
    ]
    line = json.dumps({"v": 1, "t": 7, "m": 0.0, "kind": "progress", "unfinished": wrong})
    assert running(line + "\n").unfinished == (one(5),), "a member of a newer version is passed over"
    for torn in ('{"v": 1, "t": 8, "kind": "progr', "\n", '{"v":1,"t":8,"m":0,"kind":"failed","step":[]}\n', "null\n"):
        assert running(torn).t == 7
    assert running('{"v": 1, "t": 9, "m": 0.0, "kind": "progress", "unfinished": 3}\n') is None


HOSTILE = {
    "huge": {"nbytes": 10**400},
    "nan": {"seconds": float("nan")},
    "level": {"level": "x"},
    "escape": {"waits_for": "\x1b[2J"},
    "negative": {"step": -1},
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_value_costs_its_checkpoint_alone(running, hostile):
    given = [dataclasses.asdict(one(5)), {**dataclasses.asdict(one(10)), **hostile}]
    line = json.dumps({"v": 1, "t": 7, "m": 0.0, "kind": "progress", "unfinished": given})
    assert running(line + "\n").unfinished == (one(5),)
    late = json.dumps({"v": 1, "t": 10**400, "m": 0.0, "kind": "progress", "unfinished": given})
    assert running(late + "\n").t == 7


@pytest.mark.parametrize("damaged", ["owner", "events"])
def test_a_damaged_file_says_nothing(running, tmp_path, damaged):
    assert running(Progress(unfinished=(one(5),))) is not None
    run = Run.open(tmp_path / "run")
    file = run.path / (names.OWNER_FILE if damaged == "owner" else f"{names.EVENTS_DIR}/{names.events_file(ATTEMPT)}")
    file.unlink()
    file.mkdir()
    assert newest_progress(run) is None


def test_of_a_long_file_the_end_is_read(running):
    assert running(Progress(unfinished=(one(5),))) is not None
    long = json.dumps({"v": 1, "t": 7, "m": 0.0, "kind": "notice", "message": "x" * _TAIL}) + "\n"
    assert running(long) is None
    assert running(Progress(unfinished=(one(10),))).unfinished == (one(10),)
