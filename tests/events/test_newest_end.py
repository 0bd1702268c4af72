"""How a run's newest attempt has ended, and ``deepfreeze log RUN --ended``, which a job's script asks."""

import json

import pytest

from deepfreeze.cli.main import main
from deepfreeze.events.event import Attempt, Captured, Counted, End, External, Stop
from deepfreeze.events.journal import Journal
from deepfreeze.events.newest_end import newest_end
from deepfreeze.format import names
from deepfreeze.store.run import Run
from deepfreeze.store.stores import at
from tests.support import files

IDS = ["a" * 32, "b" * 32, "c" * 32]
COMMITS = (Captured(step=5, nbytes=9), External(step=5, seconds=0.1, written=0.1))
FINISHED = (*COMMITS, Counted(engine={}), End(finished=True))
KILLED = COMMITS
RAISED = (*COMMITS, End(finished=False))
FAILED = (End(finished=False, error="the store is full"),)
STOPPED = (*COMMITS, Stop(step=5, signal="SIGUSR1"), End(finished=True))
OVER = (*COMMITS, Stop(step=5), End(finished=True))
OPENED = (End(finished=False, trained=False),)
REFUSED = (End(finished=False, error="it is of another model", trained=False),)


@pytest.fixture
def run(tmp_path):
    return files.write_run(tmp_path / "nt3")


def write(run, number, events, owner=True, t=None, rank=0):
    """An attempt that begins ``number`` hours after the first one."""
    journal = Journal(at(run), f"{names.EVENTS_DIR}/{names.events_file(IDS[number], rank)}", 0.0)
    start = (number if t is None else t) * 3600 * 10**9
    fixed = {"run_id": files.RUN_ID, "attempt": IDS[number], "ranks": 1, "host": "node1", "pid": 1}
    journal.on(Attempt(step=0, t=start, m=0.0, **fixed))
    for event in events:
        journal.on(event)
    journal.close()
    if owner:
        (run / "owner").write_text(IDS[number] + "\n")


@pytest.mark.parametrize(
    ("attempts", "ended", "why"),
    [
        ([FINISHED], True, "its training has ended"),
        ([KILLED], False, "it was killed, or it is still running"),
        ([RAISED], False, "an exception has ended it"),
        ([FAILED], False, "an error has ended it: the store is full"),
        ([STOPPED], False, "SIGUSR1 has stopped it at step 5"),
        ([OVER], False, "the end of the job has stopped it at step 5"),
        ([FINISHED, KILLED], False, "it was killed, or it is still running"),
        ([KILLED, FINISHED], True, "its training has ended"),
        ([FINISHED, OPENED], True, "its training has ended"),
        ([KILLED, OPENED, OPENED], False, "it was killed, or it is still running"),
        ([FINISHED, REFUSED], False, "an error has ended it: it is of another model"),
        ([OPENED], False, "no attempt has trained so far"),
        ([], False, "no attempt has trained so far"),
    ],
    ids=lambda value: None,
)
def test_the_newest_attempt_that_has_trained_says_whether_it_is_over(run, attempts, ended, why, capsys):
    for number, events in enumerate(attempts):
        write(run, number, events)
    found = newest_end(Run.open(run))
    assert (found.ended, found.why) == (ended, why)
    assert main(["log", str(run), "--ended"]) == (0 if ended else 1)
    printed = " ".join(capsys.readouterr().out.split())  # a long path takes more than a line
    assert printed.startswith(f"{run}: {'ended' if ended else 'not ended'}; ") and printed.endswith(why)
    assert main(["log", str(run), "--ended", "--json"]) == (0 if ended else 1)
    assert json.loads(capsys.readouterr().out) == {
        "run": str(run),
        "ended": ended,
        "why": why,
        "attempt": found.attempt,
    }


def test_the_run_and_not_the_clock_says_which_attempt_is_the_newest(run):
    """The node of the second job is a day behind. And a newest attempt without a file has told of no end."""
    write(run, 0, FINISHED)
    write(run, 1, KILLED, t=-24)
    assert newest_end(Run.open(run)).attempt == IDS[1] and not newest_end(Run.open(run)).ended
    (run / "owner").write_text("d" * 32 + "\n")
    found = newest_end(Run.open(run))
    assert (found.ended, found.why, found.attempt) == (False, "it has left no events", "d" * 32)
    (run / "owner").unlink()
    assert newest_end(Run.open(run)).ended, "then the clock does"


def test_files_of_other_ranks_and_torn_lines_do_not_count(run):
    write(run, 0, KILLED)
    write(run, 0, FINISHED, rank=3)
    with open(run / names.EVENTS_DIR / names.events_file(IDS[0]), "a") as file:
        file.write('{"v": 1, "t": 5, "m": 1.0, "kind": "end", "finished": true}')
        file.flush()
        assert not newest_end(Run.open(run)).ended, "its newline is missing"
        file.write('\n{"v": 1, "t": 6, "m": 1.0, "kind": "from the future"}\n')
    assert newest_end(Run.open(run)).ended


def test_a_step_or_follow_beside_ended_is_a_wrong_command_line(run, capsys):
    for more in ([f"{run}@5"], [str(run), "--follow"]):
        with pytest.raises(SystemExit) as caught:
            main(["log", *more, "--ended"])
        assert caught.value.code == 2 and "takes neither @STEP nor --follow" in capsys.readouterr().err


def test_a_run_that_is_not_there_or_can_not_be_read_has_not_ended(tmp_path, run, capsys):
    assert main(["log", str(tmp_path / "gone"), "--ended"]) == 1
    (run / names.EVENTS_DIR).write_text("a file in the way")
    assert main(["log", str(run), "--ended"]) == 1
    assert "Not a directory" in capsys.readouterr().err
