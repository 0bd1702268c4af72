"""``deepfreeze plan``: the text, the sentences, the picture, the JSON; and a run without a plan."""

import json
import re
import sys
from dataclasses import replace

import pytest

from deepfreeze.cli.main import main
from deepfreeze.cli.plan_sentences import BOUNDS, REASONS, sentences
from deepfreeze.events.event import Attempt, Started
from deepfreeze.events.journal import Journal
from deepfreeze.format import names
from deepfreeze.plan import auto_section
from deepfreeze.plan.checkfreq import Profile, algorithm_1
from deepfreeze.store.stores import at
from tests.support import files, plans

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def run(tmp_path):
    path = files.write_run(tmp_path / "nt3")
    plans.write_plan(path)
    return path


def as_first_chosen(profile: Profile, overhead=0.035, uncommitted=1, mtbf=None):
    """The section behind the first decision."""
    terms = algorithm_1(profile, overhead, uncommitted, mtbf)
    reason = "failures" if terms.decided_by == "failures" else "profile"
    return replace(
        plans.SECTION,
        profile=profile,
        terms=terms,
        interval=terms.interval,
        overhead=overhead,
        uncommitted=uncommitted,
        mtbf=mtbf,
        reason=reason,
        decisions=(),
        windows=(),
    )


def test_it_shows_profile_bounds_and_history(run, capsys):
    assert main(["plan", str(run)]) == 0
    assert capsys.readouterr().out.replace(str(run), "RUN").splitlines() == [
        "run          RUN",
        "interval     every 3 steps, from step 62 on",
        "because      commits take longer than before (rank 2)",
        "budget       checkpoints may make the training 3.5 % longer",
        "failures     not given (mtbf), so they set no bound",
        "under way    at most 1 checkpoint at once",
        "measured on  4 ranks with 2 cores each, local tier memory",
        "restart      not known: no job of this run has told of its first step",
        "",
        "profile of rank 2                                          value",
        "a step without a checkpoint (Ti)                          132 ms",
        "size of the rank's part (m)                               205 MB",
        "the copy of the rank's part (Tc)                           50 ms",
        "from the hand-over to the commit (Ts)                     210 ms",
        "a checkpoint makes the training longer by (To), measured  9.1 ms",
        "",
        "bound                                 steps",
        "within the budget                         2",
        "as fast as checkpoints are committed      2",
        "best for so many failures                 -",
        "",
        "a kill costs at most                               steps  their time  with the restart",
        "with this plan                                         5      615 ms                 -",
        "CheckFreq's bound: each commit within an interval      6      810 ms                 -",
        "where training waits for each commit                   3      405 ms                 -",
        "",
        "from step  was  is  because                                         rank",
        "       22    -   2  the first steps and two checkpoints were timed     0",
        "       62    2   3  commits take longer than before                    2",
        "",
        "to step  interval  overhead  95 % interval",
        "     32         2     4.1 %  2.9 % to 5.3 %",
        "     74         3     2.2 %  -0.4 % to 4.8 %",
    ]


def test_the_bound_that_decided_is_marked(tmp_path, capsys):
    path = files.write_run(tmp_path / "nt3")
    for decided, changes in {
        "within the budget": {"overhead": 0.01},
        "as fast as checkpoints are committed": {"overhead": 0.5},
        "best for so many failures": {"overhead": 0.5, "mtbf": 3600.0},
    }.items():
        section = as_first_chosen(plans.PROFILE, **changes)
        plans.write_plan(path, plans.plan_bytes(auto=section.to_json()))
        assert main(["plan", str(path)]) == 0
        marked = re.findall(r"^(.*?) +\d+  decided$", capsys.readouterr().out, re.MULTILINE)
        assert marked == [decided]


def test_explain_says_it_in_sentences(run, capsys):
    assert main(["plan", str(run), "--explain"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "A step takes 132 ms on rank 2. A checkpoint, of which rank 2 saves 205 MB, makes the training 9.1 ms longer, as measured.",
        "The budget: checkpoints may make the training 3.5 % longer. A checkpoint every 2 steps makes it 3.45 % longer, one every step "
        "6.89 %. The budget therefore allows a checkpoint every 2 steps.",
        "The store: a checkpoint is committed 260 ms after its step (50 ms for the copy, 210 ms from the hand-over to the commit). At most "
        "1 checkpoint may be under way at once. So no checkpoint has to wait for an earlier one if it is taken every 2 steps.",
        "Failures: how often the job fails was not given (mtbf), so failures set no bound.",
        "The longest of these intervals counts: every 2 steps. The budget and the time to the commit decided: they ask for the same.",
        "From step 62 on the training takes a checkpoint every 3 steps, because commits take longer than before. Rank 2 asked for it, and "
        "the ranks agree on the longest interval that one of them asks for.",
        "That is longer than every 2 steps: the interval also follows the overhead that is measured while the training goes on, and is "
        "never shorter than one execution of the train function (steps_per_execution).",
        "Up to step 74 the last four checkpoints, every 3 steps, have made the training 2.2 % longer (95 % interval: -0.4 % to 4.8 %): "
        "within the budget of 3.5 %.",
        "A kill: at most 5 finished steps must be trained again: those up to the next checkpoint (3) and those of the 210 ms from its "
        "hand-over to its commit (2). They take at most 615 ms. How long a restart takes is not known: no job of this run has told of its "
        "first step. Each checkpoint that is skipped, given up or failed adds an interval. CheckFreq's bound is 6 steps and 810 ms; where "
        "training waits for each commit it is 3 steps and 405 ms.",
    ]


def test_explain_names_what_decided_and_what_did_not():
    profile = replace(plans.PROFILE, persist=0.01)
    said = " ".join(sentences(as_first_chosen(profile)))
    assert (
        "The budget decided, not the time to the commit." in said and "every 2 steps, because the first steps" in said
    )
    said = " ".join(sentences(as_first_chosen(profile, mtbf=600.0)))
    assert "The time between failures decided, not the budget or the time to the commit." in said
    assert "the whole job fails once in 10 min. A checkpoint every 25 steps (3.3 s) then loses the least time" in said
    said = " ".join(sentences(as_first_chosen(plans.PROFILE, overhead=0.5, uncommitted=2)))
    assert (
        "A checkpoint every step makes it 6.89 % longer. The budget therefore allows a checkpoint every step." in said
    )
    assert (
        "under way at once. So waits for earlier checkpoints stay within the budget if one is taken every step." in said
    )
    assert "At most 2 checkpoints may be under way" in said and "not known yet" in said


def test_explain_says_where_a_cost_comes_from_that_was_not_measured():
    host = replace(plans.PROFILE, cost=None, copy=0.15, update=0.03)
    assert (
        "48 ms longer, which is what is left of the copy (150 ms) after 102 ms of it went on beside a step."
        in sentences(as_first_chosen(host))[0]
    )
    device = replace(host, device_copy=0.002, device_used=10**9, device_size=4 * 10**9)
    assert "2 ms longer, because rank 2 first copies its part on the device" in sentences(as_first_chosen(device))[0]


def test_an_interval_on_its_way_to_the_bounds_is_explained():
    said = " ".join(sentences(replace(plans.SECTION, interval=1)))
    assert "That is shorter than every 2 steps: an interval at most doubles at a time" in said
    said = " ".join(sentences(replace(plans.SECTION, windows=plans.SECTION.windows[:1])))
    assert said.endswith(
        "4.1 % longer (95 % interval: 2.9 % to 5.3 %): more than the budget of 3.5 %, but not beyond doubt, so the interval stays."
    )


def test_a_profile_with_a_device_shows_all_that_the_interval_follows_from(tmp_path, capsys):
    path = files.write_run(tmp_path / "nt3")
    device = replace(plans.PROFILE, cost=None, device_copy=0.002, device_used=10**9, device_size=4 * 10**9)
    plans.write_plan(path, plans.plan_bytes(auto=as_first_chosen(device, mtbf=7200.0).to_json()))
    assert main(["plan", str(path)]) == 0
    lines = [re.sub(r"  +", "  ", line) for line in capsys.readouterr().out.splitlines()]
    for line in (
        "failures  one in 2 h",
        "the writing of weights in it (Tw)  0 ms",
        "the copy on the device (Tg)  2 ms",
        "the device's memory in use (M, Mmax)  1 GB of 4 GB",
        "a checkpoint makes the training longer by (To), worked out from the above  0 ms",
    ):
        assert line in lines


def test_only_the_newest_of_a_long_history_are_listed(tmp_path, capsys):
    path = files.write_run(tmp_path / "nt3")
    decisions = tuple(auto_section.Decided(step, 2, 3, "copy", 0) for step in range(1000, 1050))
    windows = tuple(auto_section.Window(step, 3, 0.1, 0.0, 0.2) for step in range(2000, 2050))
    long = replace(plans.SECTION, decisions=decisions, windows=windows)
    plans.write_plan(path, plans.plan_bytes(auto=long.to_json()))
    assert main(["plan", str(path)]) == 0
    out = capsys.readouterr().out
    assert [int(step) for step in re.findall(r"^ *(1\d{3}|2\d{3}) ", out, re.MULTILINE)] == [
        *range(1040, 1050),
        *range(2040, 2050),
    ]


def test_every_reason_and_every_bound_has_words():
    assert tuple(REASONS) == auto_section.REASONS and list(BOUNDS) == ["budget", "commit", "failures"]


def write_start(run, number, seconds, resumed):
    """The events of job ``number`` of a run, which has told of its first step."""
    begun = Attempt(
        step=0, run_id=files.RUN_ID, attempt=f"{number:032x}", ranks=1, host="n", pid=7, resumed=resumed, t=number, m=0
    )
    journal = Journal(at(run), f"{names.EVENTS_DIR}/{names.events_file(begun.attempt)}", begun.m)
    for event in (begun, Started(step=41, seconds=seconds, since="process")):
        journal.on(event)
    journal.close()


def test_a_kill_costs_the_restart_too_once_a_job_has_told_of_it(run, capsys):
    write_start(run, 1, 40.0, resumed=None)
    assert main(["plan", str(run)]) == 0
    out = capsys.readouterr().out
    assert "first step (a job that began from scratch: none has restored a checkpoint yet)\n" in out
    assert re.search(r"^with this plan +5 +615 ms +41 s$", out, re.MULTILINE)
    for number, seconds in enumerate((14.0, 12.0, 13.0), 2):
        write_start(run, number, seconds, resumed=40)
    assert main(["plan", str(run)]) == 0
    out = capsys.readouterr().out
    assert (
        "restart      13 s from the job's beginning to its first step (median of the 3 newest jobs that restored a "
        in out
    )
    assert re.search(r"^with this plan +5 +615 ms +14 s$", out, re.MULTILINE)
    assert main(["plan", str(run), "--explain"]) == 0
    said = "A restart takes 13 s (median of the 3 newest jobs that restored a checkpoint), so a kill costs at most 14 s in all."
    assert said in capsys.readouterr().out
    assert main(["plan", str(run), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["recovery"]
    assert told["restart"] == {"seconds": 13.0, "jobs": 3, "restored": True}
    assert told["plan"] == {"steps": 5, "seconds": pytest.approx(13.0 + 3 * 0.132 + 0.0091 + 0.21)}


def test_explain_says_so_where_training_waits_for_commits(tmp_path, capsys):
    path = files.write_run(tmp_path / "nt3")
    slow = replace(plans.SECTION, profile=replace(plans.PROFILE, persist=5.0), uncommitted=2)
    plans.write_plan(path, plans.plan_bytes(auto=slow.to_json()))
    assert main(["plan", str(path), "--explain"]) == 0
    said = "at most 9 finished steps must be trained again: those up to the next checkpoint (3) and 6 more, after which training waits"
    assert said in capsys.readouterr().out


def test_json_has_the_section_as_it_is_and_what_a_kill_costs(run, capsys):
    assert main(["plan", str(run), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    recovery = told.pop("recovery")
    assert told == plans.section_json()
    assert recovery["restart"] is None and {name: one["steps"] for name, one in recovery.items() if one} == {
        "plan": 5, "checkfreq": 6, "synchronous": 3,
    }  # fmt: skip


def test_a_run_without_a_plan_says_why_and_what_to_do(tmp_path, capsys):
    run = files.write_run(tmp_path / "nt3")
    for data in (None, plans.plan_bytes(other={"key": {}})):
        if data is not None:
            plans.write_plan(run, data)
        assert main(["plan", str(run)]) == 1
        out = capsys.readouterr().out
        assert out.startswith(
            f'{run}: this run has no plan: it was trained without every="auto" or a Budget, or ended '
        )
        assert 'Train it with deepfreeze.Checkpoint(..., every="auto")' in out
        assert main(["plan", str(run), "--json"]) == 1
        assert capsys.readouterr().out == "null\n"


def test_a_damaged_plan_and_a_missing_run_are_errors(run, tmp_path, capsys):
    files.flip(run / "plan.json", 40)
    assert main(["plan", str(run)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"deepfreeze: {run}/plan.json: expected CRC32C ")
    assert said.endswith("Remove the file, or let the next training replace it.\n")
    assert main(["plan", str(tmp_path / "none")]) == 1
    assert "expected a run, with run.json" in capsys.readouterr().err


@pytest.mark.full
def test_a_picture_is_drawn_whatever_the_plan_and_the_path(tmp_path, capsys):
    run = files.write_run(tmp_path / "a$_{$b")
    picture = tmp_path / "plan.png"
    largest = auto_section.Window(2**62, 2**62, 1e17, -1e18, 1e18)
    for section in (
        plans.SECTION,
        replace(plans.SECTION, decisions=(), windows=()),
        replace(plans.SECTION, windows=(largest,)),
    ):
        plans.write_plan(run, plans.plan_bytes(auto=section.to_json()))
        picture.write_bytes(b"older")
        assert main(["plan", str(run), "--plot", str(picture)]) == 0
        said = f"{picture}: the interval and the overhead of {run}, up to step {section.last_step}\n"
        assert capsys.readouterr().out == said
        assert picture.read_bytes().startswith(PNG)
    assert main(["plan", str(run), "--plot", str(picture), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["interval"] == 3


def test_without_matplotlib_plot_says_what_to_install(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main(["plan", str(run), "--plot", str(tmp_path / "plan.png")]) == 1
    assert "Install it (pip install matplotlib)" in capsys.readouterr().err
    assert main(["plan", str(run)]) == 0 and not (tmp_path / "plan.png").exists()


@pytest.mark.parametrize("words", [["--plot", "model.weights.h5"], ["--plot"]])
def test_a_plot_into_what_is_no_picture_is_a_wrong_command_line(run, capsys, words):
    with pytest.raises(SystemExit) as caught:
        main(["plan", str(run), *words])
    assert caught.value.code == 2 and "--plot" in capsys.readouterr().err
