"""What one rank alone knows never makes it act alone: the control word, in real Horovod jobs."""

import json
import os
import signal
import time

import pytest

import deepfreeze
from deepfreeze.thaw.verify import verify
from tests.support import jobs

SLOW = "fault=delay=400:pwrite:model.weights.h5:1+"  # a store that takes longer than several steps
GRACE_S = 30  # that schedulers give, from the signal on
ALL = ["local=null", "keep=99", "final=false"]


def reports(folder, ranks):
    return [json.loads((folder / f"agreement-{rank}.json").read_text()) for rank in range(ranks)]


@pytest.mark.parametrize("who", [[0], [1], [0, 1]], ids=["rank 0", "rank 1", "both"])
def test_a_sigterm_to_any_rank_commits_the_step_at_hand_and_ends_all_ranks_cleanly(tmp_path, who):
    job = jobs.start("agreement.py", tmp_path, 2000, 1000, "pause=0.02", ranks=2)
    until = time.monotonic() + jobs.LIMIT_S
    while not (tmp_path / "run" / "structures").exists() and time.monotonic() < until:
        time.sleep(0.05)  # the first step is over
    begun = time.monotonic()
    for rank in who:
        os.kill(int((tmp_path / f"pid-{rank}").read_text()), signal.SIGTERM)
    output, _ = job.communicate(timeout=jobs.LIMIT_S)
    assert job.returncode == 0, output[-3000:]
    assert time.monotonic() - begun < GRACE_S
    first, second = reports(tmp_path, 2)
    assert first["stopped"] == second["stopped"] == "SIGTERM"
    assert first["steps"] == second["steps"] == [first["last"]] == [second["last"]]
    assert deepfreeze.latest(tmp_path / "run").step == first["last"] < 1000
    assert verify(tmp_path / "run").ok


def test_a_checkpoint_that_one_rank_has_no_room_for_is_skipped_by_all(tmp_path, testing_library):
    faults = {"DEEPFREEZE_LIBRARY": testing_library}
    options = [*ALL, SLOW, "faulty=2", "when_full=skip", "pause=0.03"]
    jobs.run("agreement.py", tmp_path, 40, 1, *options, ranks=4, **faults)
    first, *others = reports(tmp_path, 4)
    assert first["error"] is None and first["skipped"], "the slow rank had no room"
    for other in others:
        assert (other["steps"], other["skipped"]) == (first["steps"], first["skipped"])
    assert sorted(first["steps"] + first["skipped"]) == list(range(1, 41)), "every step is one or the other"
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == first["steps"], (
        "all that was taken counts"
    )


def test_ranks_that_decide_by_themselves_would_never_commit(tmp_path, testing_library):
    """The reason for the word: the same job without it."""
    faults = {"DEEPFREEZE_LIBRARY": testing_library}
    options = [*ALL, SLOW, "faulty=2", "when_full=skip", "pause=0.03", "timeout=4", "on_error=warn", "alone=1"]
    job = jobs.start("agreement.py", tmp_path, 40, 1, *options, ranks=4, **faults)
    job.communicate(timeout=jobs.LIMIT_S)
    found = reports(tmp_path, 4)
    assert found[2]["skipped"] and found[2]["skipped"] != found[0]["skipped"]
    assert any("rank 2's record is missing" in text for text in found[0]["warnings"] + [found[0]["error"] or ""])
    committed = [info.step for info in deepfreeze.checkpoints(tmp_path / "run")]
    assert set(committed).isdisjoint(found[2]["skipped"])
    assert len(committed) < len(found[0]["steps"]), "what the others took waited for a rank that never came"


def test_a_failure_of_one_rank_is_raised_by_all_ranks_after_the_same_step(tmp_path, testing_library):
    faults = {"DEEPFREEZE_LIBRARY": testing_library}
    options = [*ALL, "fault=fail=EIO:fdatasync:model.weights.h5:2", "faulty=1", "pause=0.05"]
    jobs.run("agreement.py", tmp_path, 400, 5, *options, ranks=2, **faults)
    first, second = reports(tmp_path, 2)
    # As soon as it is known: a step to be told, one to agree, and some while the disk fails.
    assert 10 < first["last"] == second["last"] <= 40
    assert "Input/output error" in second["error"]
    assert "rank 1" in first["error"]
    assert 5 in [info.step for info in deepfreeze.checkpoints(tmp_path / "run")]


def test_a_flipped_bit_on_one_rank_is_named_and_the_checkpoint_is_marked(tmp_path):
    """Of seven captures those are compared that are due: the first two, and every third from the first on."""
    jobs.run("agreement.py", tmp_path, 14, 2, *ALL, "flip=3", "check_replicas=3", "on_divergence=warn", ranks=2)
    first, second = reports(tmp_path, 2)
    infos = {info.step: info.diverged for info in deepfreeze.checkpoints(tmp_path / "run")}
    assert infos == {2: 0, 4: 1, 6: 1, 8: 1, 10: 1, 12: 1, 14: 1}
    assert list(first["diverged"]) == ["4", "6", "8", "10", "12", "14"]
    for step, said in ((4, "found 1 tensor"), (6, "found not compared since step 4: 1 tensor"), (8, "found 1 tensor")):
        (text,) = [text for text in first["warnings"] if f"/step {step}: " in text]
        tensor = first["diverged"][str(step)]
        assert f"{said} differs between the ranks, the first on rank 1: {tensor}" in text and "kernel" in tensor
    assert first["error"] is second["error"] is None
    assert verify(tmp_path / "run", 4).ok, "it is whole, only not one model"


def test_what_diverges_later_is_marked_and_leaves_the_newest_whose_ranks_agreed(tmp_path):
    """With the default options but for keep=1; compared are the first two captures, steps 2 and 4, and step 8."""
    options = ["local=null", "final=false", "keep=1", "check_replicas=3"]
    jobs.run("agreement.py", tmp_path, 12, 2, *options, "flip=7", ranks=2)
    first, second = reports(tmp_path, 2)
    assert first["error"] is second["error"] is None and first["last"] == second["last"] == 12
    assert {info.step: info.diverged for info in deepfreeze.checkpoints(tmp_path / "run")} == {6: 0, 12: 1}
    assert list(first["diverged"]) == ["8", "10", "12"]
    assert verify(tmp_path / "run", 12).diverged == 1


def test_a_divergence_that_is_to_be_refused_is_not_committed_and_ends_all_ranks(tmp_path):
    options = [*ALL, "flip=3", "check_replicas=1", "on_divergence=raise", "pause=0.05"]
    jobs.run("agreement.py", tmp_path, 400, 2, *options, ranks=2)
    first, second = reports(tmp_path, 2)
    assert first["last"] == second["last"] < 400
    assert "1 tensor differs between the ranks, the first on rank 1" in first["error"] and "kernel" in first["error"]
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [2]


def test_the_word_is_agreed_on_with_several_steps_per_execution(tmp_path):
    jobs.run("agreement.py", tmp_path, 12, 4, *ALL, "steps_per_execution=4", ranks=2)
    first, second = reports(tmp_path, 2)
    assert first["steps"] == second["steps"] == [4, 8, 12]
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")] == [4, 8, 12]
