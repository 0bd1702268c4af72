"""``deepfreeze log``: the events of a run, as lines and as JSON, also while they are written."""

import json
import subprocess
import sys

import pytest

from deepfreeze.cli.main import main
from deepfreeze.events.event import Captured, Failed
from deepfreeze.events.journal import Journal
from deepfreeze.format import names
from deepfreeze.store.stores import at
from tests.support import files, processes

NOON = 1_700_000_000_000_000_000  # 2023-11-14 22:13:20


@pytest.fixture
def journal(tmp_path):
    made = Journal(
        at(files.write_run(tmp_path / "nt3")), f"{names.EVENTS_DIR}/{names.events_file(files.ATTEMPT)}", 10.0
    )
    made.on(Captured(step=5, nbytes=620, t=NOON + 5_000_000, m=12.5))
    made.on(Failed(step=40, message="no space\x1b[2J", raised=True, reported=False, t=NOON + 10**9, m=13.5))
    yield made
    made.close()


@pytest.fixture
def run(tmp_path, journal):
    return str(tmp_path / "nt3")


def test_each_event_is_a_line_and_nothing_reaches_the_terminal_raw(run, capsys):
    assert main(["log", run]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2023-11-14 22:13:20.005       2.500 s  step 5        captured  nbytes=620",
        '2023-11-14 22:13:21.000       3.500 s  step 40       failed    message="no space\\u001b[2J"  raised=true  reported=false',
    ]


def test_a_failure_in_a_search_says_that_a_setting_was_tried(run, journal, capsys):
    journal.on(Failed(step=41, message="no space", raised=False, reported=True, tried=True, t=NOON + 2 * 10**9, m=14.5))
    assert main(["log", f"{run}@41"]) == 0
    assert capsys.readouterr().out.endswith("failed    message=no space  raised=false  reported=true  tried=true\n")


def test_a_step_has_its_own_events_and_json_is_a_line_each(run, capsys):
    assert main(["log", f"{run}@40", "--json"]) == 0
    (event,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert event["kind"] == "failed" and event["step"] == 40 and event["v"] == 1
    assert main(["log", f"{run}@41"]) == 1


def test_a_run_without_events_and_a_missing_run_are_told_apart(tmp_path, capsys):
    run = files.write_run(tmp_path / "new")
    assert main(["log", str(run)]) == 1
    assert capsys.readouterr().out == f"{run}: no events\n"
    assert main(["log", str(tmp_path / "gone")]) == 1
    assert "gone" in capsys.readouterr().err


def test_follow_prints_what_comes_while_it_runs(run, journal):
    command = [sys.executable, "-m", "deepfreeze", "log", run, "--follow", "--json"]
    with processes.child(command, stdout=subprocess.PIPE, text=True) as process:
        kinds = [json.loads(process.stdout.readline())["kind"] for _ in range(2)]
        journal.on(Captured(step=45, nbytes=1))
        assert json.loads(process.stdout.readline())["step"] == 45 and kinds == ["captured", "failed"]
