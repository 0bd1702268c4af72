"""The policies that DeepFreeze brings, on Horovod ranks: what one rank alone knows, all ranks do at the same step."""

import itertools
import json

import pytest

from tests.support.horovod import horovod

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]


def steps(job, folder, every, **arguments):
    """The steps that the ranks have saved: the same ones."""
    first, *others = job.run("policies", folder=folder, every=every, **arguments)
    assert all(other == first for other in others) and first["error"] is None and first["stopped"] is None
    assert first["steps"] == sorted(first["committed"])
    return first["steps"]


@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.full)])
def test_a_signal_to_one_rank_takes_one_checkpoint_on_all(two, tmp_path, rank):
    """It comes in step 3 on one rank, all hear of it in step 4, and the step behind the next execution is captured."""
    assert steps(two, tmp_path, "OnSignal('SIGUSR1')", signals={str(rank): [3, 9]}) == [6, 12]


def test_seconds_are_those_of_rank_0(two, tmp_path):
    """Rank 1's clock says that it is always time, and nobody asks it."""
    found = steps(two, tmp_path, "EverySeconds(1e-9 if rank else 1e6)", named="seconds")
    assert found == []
    (tmp_path / "other").mkdir()
    found = steps(two, tmp_path / "other", "EverySeconds(1e6 if rank else 1e-9)", named="seconds")
    assert len(found) > 1 and all(later - earlier == 4 for earlier, later in itertools.pairwise(found))


def test_epochs_end_at_the_same_step_on_all_ranks(two, tmp_path):
    assert steps(two, tmp_path, "FirstOf(EveryEpoch(), 9)", epochs=2) == [9, 12, 18, 24]


def of_all_measures(job, folder, slower, loop):
    """A training with ``Auto`` in which each fifth step is ``slower``, by so many seconds of each rank. Then the job is started again,
    and goes on with the interval of plan.json."""
    arguments = {"pause": 0.005, "batches": 120, "loop": loop}
    found = steps(job, folder, "Auto(0.5)", slower=slower, **arguments)
    kept = json.loads((folder / "run" / "plan.json").read_bytes())["sections"]["auto"]
    assert len(found) >= 2 and kept["key"]["world_size"] == job.size
    assert kept["decisions"][-1]["rank"] < job.size and kept["decisions"][-1]["after"] == kept["interval"]
    again, *_ = job.run("policies", folder=folder, every="Auto(0.5)", **(arguments | {"epochs": 2}))
    # An interval that was doubled for want of plain steps is not taken over whole.
    worked_out = max(kept["terms"]["by_commit"], kept["terms"]["by_budget"])
    assert [again["intervals"][0][1], again["intervals"][0][2]] == [min(kept["interval"], 2 * worked_out), "resumed"]


@pytest.mark.full
@pytest.mark.parametrize("loop", [False, True], ids=["fit", "loop"])
def test_all_ranks_capture_the_same_steps_whatever_each_measures(two, tmp_path, loop):
    of_all_measures(two, tmp_path, {"0": 0.002, "1": 0.02}, loop)


@pytest.mark.full
def test_four_ranks_capture_the_same_steps_whatever_each_measures(tmp_path):
    with horovod(4) as four:
        of_all_measures(four, tmp_path, {"0": 0.002, "1": 0.02, "2": 0, "3": 0.01}, loop=False)


@pytest.mark.full
def test_a_hand_written_loop_hears_a_signal_to_one_rank(two, tmp_path):
    """The ranks meet about once a second, and sooner where their steps are slow."""
    found = steps(two, tmp_path, "OnSignal('SIGUSR1')", signals={"1": [3]}, loop=True, pause=0.3, batches=20)
    assert len(found) == 1 and 5 <= found[0] < 20


def test_ranks_with_other_policies_are_refused_before_training(two, tmp_path):
    first, second = two.run("policies", folder=tmp_path, every="OnSignal('SIGUSR1') if rank else EverySeconds(60)")
    for error in (first["error"], second["error"]):
        assert "every=EverySeconds(seconds=60.0)" in error and "every=OnSignal(SIGUSR1)" in error


@pytest.mark.parametrize("loop", [False, pytest.param(True, marks=pytest.mark.full)], ids=["fit", "loop"])
def test_rank_0_ends_the_training_of_all_before_the_job_ends(two, tmp_path, loop):
    """Rank 1's own clock, or its variable, says that the job has an hour left."""
    first, second = two.run("policies", folder=tmp_path, every="Never()", ends_in=[0.05, 3600], loop=loop, batches=400)
    assert first == second and first["stopped"] == "ends_at" and first["error"] is None
    assert first["steps"] == first["committed"] and len(first["steps"]) == 1 and first["steps"][0] < 400


# A rank's bytes are durable so many milliseconds later, however many are written at once.
FAR_MS = 60
FAR = f"delay={FAR_MS}:fdatasync:model.weights.h5:1+"
TUNED = {"every": "Budget(0.5)", "pause": 0.004, "batches": 10_000, "tuned": True}
TUNED["engine"] = {"writers": 2, "in_flight": 3}


def tuned(job, folder, faults):
    """A training with ``Budget`` until the ranks have an interval: what all of them say, and what plan.json has."""
    first, *others = job.run("policies", faults=faults, folder=folder, **TUNED)
    for one in (first, *others):
        one["committed"].sort()  # a rank may look late, when two are committed
    assert others == [first] * len(others), "the steps, the setting and the intervals"
    assert first["error"] is None and first["stopped"] is None and len(first["steps"]) <= 42
    kept = json.loads((folder / "run" / "plan.json").read_bytes())["sections"]["budget"]
    assert kept["key"]["world_size"] == job.size and kept["chosen"] == first["setting"]
    assert first["intervals"][0][2] == "profile" and first["intervals"][0][1] >= 1
    return first, kept


@pytest.mark.full
@pytest.mark.parametrize("far", [0, 1])
def test_ranks_agree_on_a_setting_and_an_interval_and_lose_nothing(two, tmp_path, far):
    """The store is far away for one of them, and the search knows it, whichever rank that is. A job that is started again tries nothing.
    Which setting wins depends on the machine's own times (tests/plan/test_budget has the choice)."""
    first, kept = tuned(two, tmp_path, {far: FAR})
    assert first["steps"] == first["committed"]
    assert all(one["commit"] >= FAR_MS / 1e3 for one in kept["tried"])
    again, other = two.run("policies", folder=tmp_path, **TUNED)
    assert again["setting"] == other["setting"] and again["setting"] == first["setting"]
    assert again["intervals"][0][2] == "resumed" and again["intervals"][0][0] <= max(first["steps"]) + 15


@pytest.mark.full
@pytest.mark.parametrize(("full", "calls"), [(0, (14, 15)), (1, (8,))])
def test_a_store_that_is_full_for_one_rank_ends_the_search_of_all(two, tmp_path, full, calls):
    """Two checkpoints of the profile and four of single ones come before. What failed is on no rank, and training goes on everywhere with a
    setting that has worked."""
    # Rank 0 asks twice for each checkpoint; and tries once more where it can remove an older one.
    fault = ",".join([FAR, *(f"fail=ENOSPC:fdatasync:model.weights.h5:{call}" for call in calls)])
    first, kept = tuned(two, tmp_path, {full: fault})
    assert kept["ended"] == "store" and any(first["setting"].items() <= one.items() for one in kept["tried"])
    failed = set(first["steps"]) - set(first["committed"])
    assert failed and max(first["committed"]) > max(failed)
    assert not list((tmp_path / "run").glob("*.partial-*"))
