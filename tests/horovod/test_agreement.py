"""What one rank alone knows never makes it act alone: the control word, in real Horovod jobs."""

import json
import os
import signal
import time

import pytest

import deepfreeze
from deepfreeze.inspect.verify import verify
from tests.support import jobs
from tests.support.horovod import case, horovod

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]
SLOW = "delay=400:pwrite:model.weights.h5:1+"  # a store that takes longer than several steps
GRACE_S = 30  # that schedulers give, from the signal on
ALL = {"local": None, "keep": 99, "final": False}


def steps(folder):
    return [info.step for info in deepfreeze.checkpoints(folder / "run")]


@pytest.mark.parametrize(
    "who",
    [
        pytest.param([0], marks=pytest.mark.full),
        pytest.param([1], marks=pytest.mark.timing),
        pytest.param([0, 1], marks=pytest.mark.full),
    ],
    ids=["first", "second", "both"],
)
def test_a_sigterm_to_any_rank_ends_all_ranks_cleanly(tmp_path, who):
    """The step at hand is committed, and the job ends with 0, within the time that schedulers give."""
    launch = case("agreement", folder=tmp_path, steps=2000, every=1000, pause=0.02)
    with jobs.job(*launch, ranks=2) as job:
        job.until((tmp_path / "run" / "structures").exists)  # the first step is over
        begun = time.monotonic()
        for rank in who:
            os.kill(job.pid(rank), signal.SIGTERM)
        assert job.wait(GRACE_S) == 0
        assert time.monotonic() - begun < GRACE_S
    first, second = (json.loads((tmp_path / f"agreement-{rank}.json").read_text()) for rank in range(2))
    assert first["stopped"] == second["stopped"] == "SIGTERM"
    assert first["steps"] == second["steps"] == [first["last"]] == [second["last"]]
    assert deepfreeze.latest(tmp_path / "run").step == first["last"] < 1000
    assert verify(tmp_path / "run").ok


def assert_all_skip_what_one_has_no_room_for(job, folder, slow):
    options = {**ALL, "when_full": "skip", "pause": 0.03, "enough": {"skipped": 3}}
    first, *others = job.run("agreement", {slow: SLOW}, folder=folder, steps=400, every=1, **options)
    assert first["error"] is None and first["skipped"], "the slow rank had no room"
    for other in others:
        assert (other["steps"], other["skipped"]) == (first["steps"], first["skipped"])
    every_step = list(range(1, first["last"] + 1))
    assert sorted(first["steps"] + first["skipped"]) == every_step, "every step is one or the other"
    assert steps(folder) == first["steps"], "all that was taken counts"


@pytest.mark.full
@pytest.mark.timing
def test_a_checkpoint_that_one_rank_has_no_room_for_is_skipped_by_all(two, tmp_path):
    assert_all_skip_what_one_has_no_room_for(two, tmp_path, slow=1)


@pytest.mark.full
def test_four_ranks_skip_what_one_of_them_has_no_room_for(tmp_path, testing_library):
    """The slow one is neither the first nor the last."""
    with horovod(4, DEEPFREEZE_LIBRARY=testing_library) as four:
        assert_all_skip_what_one_has_no_room_for(four, tmp_path, slow=2)


@pytest.mark.timing
@pytest.mark.parametrize("slow", [0, pytest.param(1, marks=pytest.mark.full)])
def test_replace_never_starves_a_slow_store(two, tmp_path, slow):
    """The store of one rank takes as long as many steps. Whatever waits gives way to newer steps, on both ranks alike; the oldest never
    does, so one checkpoint after the other is committed."""
    # A checkpoint gives way only if neither rank has begun to write it. On a busy machine that may need several commits.
    enough = {"superseded": 2, "committed": 3}
    options = {**ALL, "in_flight": 3, "uncommitted": 3, "when_full": "replace", "pause": 0.03, "enough": enough}
    first, second = two.run("agreement", {slow: SLOW}, folder=tmp_path, steps=800, every=1, **options)
    assert first["error"] is second["error"] is None and first["warnings"] == second["warnings"] == []
    for name in ("steps", "skipped", "superseded", "committed"):
        assert first[name] == second[name]
    given_up = set(first["superseded"])
    assert given_up and given_up <= set(first["steps"])
    assert sorted(first["steps"] + first["skipped"]) == list(range(1, first["last"] + 1))
    assert steps(tmp_path) == first["committed"] == [step for step in first["steps"] if step not in given_up]
    assert first["committed"][0] == 1 and len(first["committed"]) >= 3


@pytest.mark.parametrize("level", ["captured", "external"])
def test_a_failure_of_one_rank_is_raised_by_all_after_the_same_step(two, tmp_path, level):
    """Who waits for step 10 knows at its end, tells the others in step 11, and all raise after that; else it is known later."""
    fails = {1: "fail=EIO:fdatasync:model.weights.h5:2"}
    options = {**ALL, "wait_for": level, "pause": 0.05}
    first, second = two.run("agreement", fails, folder=tmp_path, steps=400, every=5, **options)
    assert 10 < first["last"] == second["last"] < (12 if level == "external" else 400)
    assert "Input/output error" in second["error"]
    assert "rank 1" in first["error"]
    assert steps(tmp_path)[0] == 5 and 10 not in steps(tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("silent", [4, 8], ids=["amid", "last"])
def test_a_step_that_one_rank_can_not_give_fails_on_all_at_once(two, tmp_path, silent):
    """An object of rank 1 raises. Nobody waits for rank 1's part of that step (the time-out is 600 s), and training goes on."""
    options = {"local": None, "keep": 99, "silent": silent, "on_error": "warn"}
    first, second = two.run("agreement", folder=tmp_path, steps=8, every=2, **options)
    assert first["error"] is second["error"] is None and first["last"] == second["last"] == 8
    assert steps(tmp_path) == [step for step in (2, 4, 6, 8) if step != silent]
    (told,), (own,) = first["warnings"], second["warnings"]
    assert f"step-000000000{silent}: rank 1 failed: extra['reader']" in told and "the reader is closed" in own


@pytest.mark.full
@pytest.mark.parametrize("silent", [4, 400], ids=["amid", "last"])
def test_an_object_that_raises_on_one_rank_ends_all_after_the_same_step(two, tmp_path, silent):
    options = {"local": None, "keep": 99, "silent": silent, "pause": 0.05 if silent == 4 else 0}
    first, second = two.run("agreement", folder=tmp_path, steps=400, every=silent, **options)
    assert first["last"] == second["last"] <= 400 and (silent == 4) == (first["last"] < 400)
    assert "rank 1" in first["error"] and "the reader is closed" in second["error"]
    assert silent not in steps(tmp_path)


def test_a_flipped_bit_on_one_rank_is_named_and_the_checkpoint_is_marked(two, tmp_path):
    """The second comparison finds it; every checkpoint from there on is marked."""
    options = {**ALL, "flip": 3, "on_divergence": "warn"}
    first, second = two.run("agreement", folder=tmp_path, steps=14, every=2, **options)
    infos = {info.step: info.diverged for info in deepfreeze.checkpoints(tmp_path / "run")}
    assert infos == {2: 0, 4: 1, 6: 1, 8: 1, 10: 1, 12: 1, 14: 1}
    assert list(first["diverged"]) == ["4", "6", "8", "10", "12", "14"]
    for step in (4, 6, 8, 14):
        (text,) = [text for text in first["warnings"] if f"/step {step}: " in text]
        tensor = first["diverged"][str(step)]
        assert f"1 tensor differs between the ranks, the first on rank 1: {tensor}" in text and "kernel" in tensor
    # In the end the ranks have agreed that a difference is known, and compare everything.
    assert "found 1 tensor differs" in next(text for text in first["warnings"] if "/step 14: " in text)
    assert first["error"] is second["error"] is None
    assert verify(tmp_path / "run", 4).ok, "it is whole, only not one model"


def test_what_diverges_later_leaves_the_newest_whose_ranks_agreed(two, tmp_path):
    """Compared are steps 2 and 4 whole, and then one of two parts at each step. The part that has the flipped bit finds it within two
    checkpoints, and from then on every checkpoint is marked, whatever part it compares."""
    options = {"local": None, "final": False, "keep": 1, "parts": 2, "flip": 7, "pause": 0.05}
    first, second = two.run("agreement", folder=tmp_path, steps=16, every=2, **options)
    assert first["error"] is second["error"] is None and first["last"] == second["last"] == 16
    found = sorted(map(int, first["diverged"]))
    assert found[0] in (8, 10) and found == list(range(found[0], 17, 2))
    infos = {info.step: info.diverged for info in deepfreeze.checkpoints(tmp_path / "run")}
    assert infos == {found[0] - 2: 0, 16: 1}
    assert verify(tmp_path / "run", 16).diverged == 1


def test_a_refused_divergence_is_not_committed_and_ends_all_ranks(two, tmp_path):
    options = {**ALL, "flip": 3, "on_divergence": "raise", "pause": 0.05}
    first, second = two.run("agreement", folder=tmp_path, steps=400, every=2, **options)
    assert first["last"] == second["last"] < 400
    assert "1 tensor differs between the ranks, the first on rank 1" in first["error"] and "kernel" in first["error"]
    assert steps(tmp_path) == [2]


def test_the_word_is_agreed_on_with_several_steps_per_execution(two, tmp_path):
    first, second = two.run("agreement", folder=tmp_path, steps=12, every=4, steps_per_execution=4, **ALL)
    assert first["steps"] == second["steps"] == [4, 8, 12]
    assert steps(tmp_path) == [4, 8, 12]
