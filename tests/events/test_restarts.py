"""The beginnings of the files of events say how long the jobs of a run took to begin."""

import json

import pytest

from deepfreeze.events.event import Attempt, Captured, Started
from deepfreeze.events.restarts import _NEWEST, Restarts, newest_restarts
from deepfreeze.format import names
from deepfreeze.store.run import Run
from tests.support import files

NOON = 1_700_000_000_000_000_000


@pytest.fixture
def run(tmp_path):
    return Run.open(files.write_run(tmp_path / "nt3"))


def write(run, number, seconds, resumed=None, since="process", rank=0):
    """The file of attempt ``number``, which began so many seconds after noon."""
    attempt = f"{number:032x}"
    t = NOON + number * 10**9
    begun = Attempt(step=0, run_id="cd" * 16, attempt=attempt, ranks=1, host="n", pid=7, resumed=resumed, t=t, m=0.0)
    lines = [begun]
    if seconds is not None:
        lines.append(Started(step=1, seconds=seconds, since=since, t=t + 1, m=1.0))
    lines.append(Captured(step=5, nbytes=10, t=t + 2, m=2.0))
    file = run.path / names.EVENTS_DIR / names.events_file(attempt, rank)
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(event.to_json(0.0)) + "\n" for event in lines))
    return file


def test_jobs_that_restored_a_checkpoint_count_before_those_that_did_not(run):
    assert newest_restarts(run) is None, "no events"
    write(run, 1, None)
    assert newest_restarts(run) is None, "killed before its first step"
    write(run, 2, 30.0)
    assert newest_restarts(run) == Restarts(30.0, 1, False)
    for number, seconds in enumerate((12.0, 11.0, 99.0), 3):
        write(run, number, seconds, resumed=40)
    assert newest_restarts(run) == Restarts(12.0, 3, True)


def test_the_newest_jobs_count_whatever_their_files_are_called(run):
    for number in range(1, _NEWEST + 6):
        write(run, number, 100.0 if number <= 5 else 10.0, resumed=40)
    assert newest_restarts(run) == Restarts(10.0, _NEWEST, True)


def test_lines_that_tell_no_time_of_a_process_do_not_count(run):
    write(run, 1, 5.0, resumed=40, since="attempt")
    write(run, 2, 5.0, resumed=40, rank=3)
    for number, seconds in enumerate((-1.0, float("nan"), float("inf"), True, "5", None), 3):
        file = write(run, number, 1.25, resumed=40)
        file.write_text(file.read_text().replace("1.25", json.dumps(seconds)))
    torn = write(run, 20, 5.0, resumed=40)
    torn.write_text(torn.read_text()[:-100].partition('"kind": "started"')[0])
    write(run, 21, 5.0, resumed=40).write_bytes(b"\xff\n[1]\n{}\n")
    (run.path / names.EVENTS_DIR / f"{22:032x}.jsonl").mkdir()
    assert newest_restarts(run) is None
