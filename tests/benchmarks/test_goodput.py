"""Goodput under a trace of preemptions: the trace, the closed formula beside the published figure and a stepped replay, the tables."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import statistics

import pytest

from benchmarks import (
    docs,
    goals,
    goodput,
    goodput_kills,
    goodput_ours,
    goodput_published,
    goodput_replay,
    goodput_trace,
)
from benchmarks.goodput_replay import NOTHING, ONE, SEVERAL, SYNCHRONOUS, Job
from benchmarks.goodput_tuned import Tuned, chosen
from benchmarks.recovery_life import Life, Mark
from benchmarks.report import Report
from deepfreeze.engine.options import Engine
from deepfreeze.errors import OptionError

HEADER = ",Time,GPUs\n"
# Machines of 4 GPUs: 2 at first, then 3 GPUs less, 4 more, 9 less.
ROWS = "0,1000.5,8\n1,1063.5,8\n2,1126.5,5\n3,1189.5,9\n4,1252.5,9\n5,1315.5,0\n"
CHOICE = Tuned(interval=7, writers=4, transfers=2, uncommitted=3)


def trace(tmp_path, text):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return goodput_trace.read(path)


def test_a_trace_has_its_changes_as_events(tmp_path):
    found = trace(tmp_path, HEADER + ROWS)
    assert (found.seconds, found.held, found.losses) == (315.0, 8, 2)
    assert found.events == [(126.0, -3), (189.0, 4), (315.0, -9)]
    assert found.artifact == 2 + 0 + 1 + 2, "whole machines, the first row's among them"
    faster = found.faster(2)
    assert (faster.seconds, faster.times) == (157.5, [63.0, 94.5, 157.5])
    assert found.first(200).times == [126.0, 189.0] and found.first(200).seconds == 200


def test_a_made_trace_has_the_published_rate_of_events():
    made = goodput_trace.seeded(1)
    assert (made.seconds, len(made.events)) == (goodput_trace.SECONDS, goodput_trace.EVENTS)
    assert made == goodput_trace.seeded(1) != goodput_trace.seeded(2)
    assert made.times == sorted(made.times) and 0 < made.losses < len(made.events)


@pytest.mark.parametrize(
    ("text", "expected", "found"),
    [
        (None, "a readable CSV file", "No such file"),
        ("", "the header ',Time,GPUs'", "''"),
        ("Time,GPUs\n1,2\n", "the header ',Time,GPUs'", "'Time,GPUs'"),
        (HEADER + "0,1,4\n1,2\n", "a number, seconds and GPUs (0 or more) in each row", "'1,2' in row 1"),
        (HEADER + "0,nan,4\n", "a number, seconds and GPUs (0 or more) in each row", "'0,nan,4' in row 0"),
        (HEADER + "0,1,-4\n", "a number, seconds and GPUs (0 or more) in each row", "'0,1,-4' in row 0"),
        (HEADER + "0,1000,4\n1,1126,8\n2,1063,4\n", "times in ascending order", "1063 after 1126 in row 2"),
        (HEADER + "0,1,4\n1,2,4\n", "at least one event", "4 GPUs in all 2 rows"),
        (HEADER, "a job that holds a GPU at some time", "0 GPUs in all 0 rows"),
        (HEADER + "0,1,0\n1,2,0\n", "a job that holds a GPU at some time", "0 GPUs in all 2 rows"),
    ],
)
def test_a_trace_that_cannot_be_replayed_is_refused(tmp_path, text, expected, found):
    path = tmp_path / "trace.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(OptionError) as caught:
        goodput_trace.read(path)
    error = caught.value
    assert error.where == str(path) and expected in error.expected and found in error.found and error.todo
    parser = argparse.ArgumentParser(exit_on_error=False)
    goodput.options(parser)
    with pytest.raises(argparse.ArgumentError, match=re.escape(found)):
        parser.parse_args(["--trace", str(path)])


def test_the_published_goodput_comes_out():
    tested = 0
    for row in goodput_published.measure(None):
        if not row.labels["solved"]:
            assert row.median("formula") == pytest.approx(row.median("published"), rel=1e-3), row.labels
            tested += 1
    assert tested == 10
    commits = [goodput_published.job("PCcheck", every).commit for every in (25, 50)]
    assert commits == pytest.approx([3.43, 2.08], abs=5e-3)
    for interval in goodput_published.INTERVALS:
        assert goodput_published.solved_load(interval) == pytest.approx(goodput_published.load(), abs=2e-3)


def test_the_real_events_stand_beside_those_of_the_artifact(tmp_path):
    shown = goodput_published.tables(goodput_published.measure(trace(tmp_path, HEADER + ROWS)))
    assert "| with the trace's 3 events |" in shown
    assert re.search(r"\| PCcheck\\\* \| 50 \| 15.3200 \| 15.3200 \| [+-]0.000% \| 2.08 \| 15.\d+ \|", shown)


def test_a_replay_steps_through_the_kills():
    job = Job(ONE, plain=1, step=1, every=2, load=3, commit=1, uncommitted=1)
    # Steps 2, 4 and 6 are committed a second later; the kill takes step 7 and half of step 8. At 10.5 s step 7 begins again.
    assert goodput_replay.replayed(job, 20, [7.5]) * 20 == 6 + 9
    assert goodput_replay.replayed(job, 20, [6.5]) * 20 == 4 + 10, "step 6 was not committed yet"
    assert goodput_replay.replayed(job, 20, [7.5, 8.5]) * 20 == 6 + 8, "the second kill comes while the first is loaded"
    slow = dataclasses.replace(job, commit=5)
    assert goodput_replay.replayed(slow, 8, []) * 8 == 5, "step 4 waits until step 2 is committed, at 7 s"
    two = dataclasses.replace(slow, uncommitted=2)
    assert goodput_replay.replayed(two, 8, []) * 8 == 7, "step 6 waits for it"
    assert goodput_replay.replayed(two, 20, [6, 10]) * 20 == 6, "the first kill takes the checkpoints on their way"


# The closed formula takes a kill's loss as half of its worst case. That is its mean for synchronous checkpoints, and with one uncommitted
# checkpoint if a commit takes half an interval on average. The newest checkpoint is always a commit old, so with several of them the
# formula has half of a commit too little, and the stepped replay makes fewer steps by as much. Where each step is kept, the replay
# loses half of the step under way.
@pytest.mark.parametrize(
    ("policy", "commit", "uncommitted", "every"),
    [(SYNCHRONOUS, 0.0, 1, 10), (ONE, 2.5, 1, 10), (SEVERAL, 2.0, 4, 10), (SEVERAL, 6.0, 4, 10), (NOTHING, 0.0, 1, 1)],
)
def test_the_simulator_agrees_with_a_stepped_replay(policy, commit, uncommitted, every):
    seconds, events, traces = 3000.0, 10, 20
    job = Job(policy, plain=0.5, step=0.5, every=every, load=3.0, commit=commit, uncommitted=uncommitted)
    stepped = [
        goodput_replay.replayed(job, seconds, goodput_trace.seeded(seed, seconds, events).times)
        for seed in range(traces)
    ]
    mean, error = statistics.fmean(stepped), statistics.stdev(stepped) / traces**0.5
    # Four standard errors; and the few kills that come before the next checkpoint is committed, of which the formula knows nothing.
    allowed = 4 * error + 5e-4 * mean
    averaging = events * (job.redo_on_average - job.redo) / (job.step * seconds)
    half = {SEVERAL: commit / 2, NOTHING: job.step / 2}.get(policy, 0.0)
    assert averaging == pytest.approx(events * half / (job.step * seconds))
    assert goodput_replay.goodput(job, seconds, events) - averaging == pytest.approx(mean, abs=allowed)


def test_more_kills_than_time_leave_no_goodput():
    job = Job(SYNCHRONOUS, plain=1, step=1, every=10, load=5)
    assert goodput_replay.goodput(job, 100, 10) == 0
    assert goodput_replay.replayed(job, 100, [10 * n + 4 for n in range(10)]) == 0.01, "the steps since the last kill"


def ours(slower: float) -> Report:
    """A workload whose plain step takes 0.1 s, and whose tuned step as much more as said."""

    def of(step: float, commits: list[float]) -> dict:
        return {"rate": [1 / step] * 3, "commits": commits}

    by_policy = {
        None: of(0.1, []),
        goodput_ours.SYNCHRONOUS: of(0.15, []),
        goodput_ours.CHECKFREQ: of(0.12, [0.3]),
        goodput_ours.MANY: of(0.11, [0.4]),
        goodput_ours.TUNED: of(0.1 * slower, [0.4]),
    }
    at_its_interval = {policy: by_policy[policy] for policy in (None, goodput_ours.CHECKFREQ, goodput_ours.TUNED)}
    made = Report("goodput", "How many?", {"traces": dict.fromkeys(goodput.PARTS, "seed 1")})
    replays = goodput_ours.Replays("resnet50", [4.0, 5.0], goodput_trace.seeded(1, 1500.0, 5))
    made.rows = goodput_ours.made(replays, {7: at_its_interval, 10: by_policy, 100: by_policy}, CHOICE)
    for row in made.rows:
        row.labels = {"part": "interval" if row.labels["every"] == CHOICE.interval else "ours", **row.labels}
    return made


def killed(report: Report, steps: int) -> Report:
    """A training of 100 s with a kill after 50 s, beside a forecast of 900 steps."""
    events = goodput_trace.Trace(100.0, 4, [(50.0, -4)], "by hand")
    job = Job(ONE, plain=0.1, step=0.1, every=10, load=9.0, commit=0.3)
    for policy in ("tuned", "CheckFreq"):
        labels = {"part": "kills", "policy": policy, "every": 10, "job": dataclasses.asdict(job)}
        found = goodput_kills.Found(steps, [(50.0, 500), (100.0, steps)], [], [8], [0.11])
        row = report.row(**labels)
        goodput_kills.add(row, job, found, events)
        row.add("tested at", "s", [50.0, 100.0]).add("accuracy", "", [0.4, 0.85])
    return report


def test_policies_are_shown_beside_the_bound_and_the_paper():
    shown = goodput.tables(killed(ours(1.01), 850))
    assert "| resnet50 | CheckFreq | 10 | 100 | 1.200 (1.200..1.200) | 300 | 4.5 |" in shown
    assert (
        "| resnet50 | tuned: N = 3, 4 writers, 2 transfers, its interval | 7 | 3 | 100 | 1.010 (1.010..1.010) | 400 |"
        in shown
    )
    assert "| resnet50 | epoch only | 1000 | 100 | 1.020 (1.020..1.020) |" in shown
    assert re.search(r"\| resnet50 \| bound \| - \| .* \| 1.000 \(1.000..1.000\) \|", shown)
    assert "| PCcheck, Figure 9: VGG16 | PCcheck | 10 | 2.15 |" in shown and "| at most 2.86 |" in shown
    assert "| tuned | 10 | 1.67 | 1 | 100 | 100 | 300 | 9.0 | 110 | 850 | 8.0 | 900 (+5.9%) |" in shown
    assert "| test accuracy after | 0.8 min | 1.7 min |" in shown and "| tuned | 0.40 | 0.85 |" in shown
    assert "**The published figure.**" not in shown, "this part was not measured"


def test_a_cell_of_few_rounds_has_the_scatter_of_all_cells():
    """Two rounds that agree by chance say nothing of the third; many that agree do."""
    wide = [[0.9, 1.1, 1.0], [0.92, 1.08, 1.0, 1.05], [0.95, 0.95]]
    (low, ratio, high), *_ = reversed(goodput_ours.medians_within(wide))
    assert (low, high) != (0.95, 0.95) and low < 0.95 < high and high > 1 and ratio == 0.95
    ((low, _, high),) = goodput_ours.medians_within([[0.95, 0.951, 0.949] * 4])
    assert 0.94 < low < high < 0.96
    assert goodput_ours.medians_within([[0.5]]) == [(0.5, 0.5, 0.5)]


def test_a_tuner_that_chose_checkfreqs_setting_has_its_rates():
    same = Tuned(7, Engine().writers, Engine().transfers, 1)
    assert goodput_ours.TUNED in goodput_ours.settings(10, CHOICE)
    assert goodput_ours.TUNED not in goodput_ours.settings(10, same), "nothing is measured twice"
    found = {"rate": [10.0, 9.0], "commits": [0.3]}
    replays = goodput_ours.Replays("resnet50", [4.0], goodput_trace.seeded(1, 1500.0, 5))
    rows = goodput_ours.made(replays, {7: {None: found, goodput_ours.CHECKFREQ: found}}, same)
    checkfreq, tuned = (
        goodput_ours.find(rows, "resnet50", name, 7) for name in (goodput_ours.CHECKFREQ, goodput_ours.TUNED)
    )
    assert tuned.samples("step") == checkfreq.samples("step") and tuned.labels["chosen"]


@pytest.mark.parametrize(("slower", "steps", "reached"), [(1.01, 850, True), (1.3, 800, False)])
def test_tuned_goodput_and_forecasts_are_judged(slower, steps, reached):
    found = {one.what: one for one in goals._goodput(killed(ours(slower), steps))}
    assert found["goodput, tuned, every 7, resnet50"].reached is reached
    beside = found["goodput over CheckFreq's, every 10, resnet50"]
    assert beside.reached is reached and "2.15 for VGG16, at most 2.86" in beside.found
    assert "2.15" not in found["goodput over CheckFreq's, every 100, resnet50"].found
    assert found["forecast of 1 real kills, CheckFreq"].reached is reached
    assert goals._goodput(None) == [], "goals of results that there are not are not shown"


def test_the_document_takes_the_section_once_it_is_measured(tmp_path):
    text = f"<!-- begin goodput -->\n{docs.UNMEASURED}\n<!-- end goodput -->\n"
    assert docs.rewritten(text, tmp_path) == (text, [])
    killed(ours(1.01), 850).save(tmp_path / "goodput.json")
    new, changed = docs.rewritten(text, tmp_path)
    assert changed == ["goodput"] and "resnet50" in new


def test_the_tuners_choice_is_read():
    said = {"interval": 7, "chosen": {"writers": 4, "transfers": 2, "uncommitted": 3}, "profile": {}, "trials": []}
    assert chosen(json.dumps(said)) == CHOICE
    assert CHOICE.engine == {"writers": 4, "transfers": 2, "uncommitted": 3, "in_flight": 3, "io": "direct"}
    for text in ("", "[]", '{"interval": 7}', '{"interval": null, "chosen": {}}'):
        with pytest.raises(SystemExit, match="printed no choice"):
            chosen(text)


def test_a_shorter_training_has_the_first_part_of_the_trace():
    made = goodput_trace.seeded(1)
    whole, part = (goodput_kills.planned(minutes, made, quick=False) for minutes in (60.0, 3.0))
    assert whole.clock == pytest.approx(made.seconds / 3600) and part.clock == pytest.approx(made.seconds / 1800)
    assert [one.name for one in goodput_kills.policies(CHOICE)] == ["tuned", "CheckFreq"]
    assert {one.every for one in goodput_kills.policies(CHOICE)} == {7}


def test_the_forecast_is_made_of_all_steps_of_lives_but_the_first():
    begun = [Mark(name, at, 0) for name, at in (("imported", 2.0), ("built", 3.0), ("restored", 4.0))]
    lives = [Life(0, 100, [*begun, *(Mark("step", 6.0 + pace * n, n + 1) for n in range(5))]) for pace in (1.0, 3.0)]
    figures = goodput_kills.Figures()
    for life, seconds in zip(lives, (0.1, 0.3), strict=True):
        figures.add(
            life, [{"kind": "external", "seconds": one} for one in (9.0, seconds, seconds)] + [{"kind": "captured"}]
        )
    policy = goodput_kills.Policy("N", SEVERAL, 5, 4, {})
    # A restart takes 6 s with its first step; of which the mean steps, 1 and 3 s, are no part of the load.
    assert figures.job(policy, 0.9) == Job(SEVERAL, 0.9, 2.0, 5, (5.0 + 3.0) / 2, 0.2, 4)
    with pytest.raises(SystemExit, match="lived for 9 s had no second step"):
        figures.add(Life(0, 9, begun), [])


def test_a_killed_process_has_done_what_it_noted_or_what_was_committed():
    life = Life(0, 100, [Mark("restored", 0, 0), *(Mark("step", step, step) for step in range(1, 9))])
    assert goodput_kills.done(life, [4, 6]) == (8, 6)
    assert goodput_kills.done(Life(0, 1, [Mark("imported", 0, 0)]), [4, 6]) == (6, 6), "killed before it was restored"


@pytest.mark.full
def test_ours_and_the_published_goodput_are_drawn_over_the_interval(tmp_path):
    made = killed(ours(1.01), 850)
    for row in goodput_published.measure(None):
        row.labels = {"part": "published", **row.labels}
        made.rows.append(row)
    goodput.draw(made, tmp_path / "goodput.png")
    assert (tmp_path / "goodput.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.tensorflow
@pytest.mark.full
def test_a_training_is_really_killed_and_its_steps_counted(tmp_path):
    events = goodput_trace.Trace(20.0, 4, [(8.0, -4)], "by hand")
    plan = goodput_kills.Plan(20 / 60, 1.0, genes=2308, plain=4.0, lives=1)
    for row in goodput_kills.measure(plan, None, tmp_path, events):
        steps = row.samples("steps at")
        assert len(steps) == 2 and steps[-1] == row.median("steps") > steps[0] > 0
        assert row.median("lost") >= 0 and len(row.samples("accuracy")) == 2
        assert row.median("formula") > 0 and row.median("replayed") > 0
