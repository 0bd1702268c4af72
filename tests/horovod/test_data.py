"""Real jobs over ``deepfreeze.data.Resumable`` that are killed inside of an epoch, and go on with other numbers of ranks: every sample that
they train is written down."""

import json
import shutil

import numpy as np
import pytest

import deepfreeze
from tests.support import jobs, kerases, samples

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]


def train(folder, api, ranks, items, batch, epochs, stop=0, accumulated=1):
    """Runs tests/jobs/resumable.py until the end of batch ``stop``, at which its ranks are killed; 0: until training has ended. Returns
    what it said."""
    folder.mkdir(exist_ok=True)
    with jobs.job("resumable.py", api, folder, items, batch, epochs, stop, accumulated, ranks=ranks) as job:
        assert (job.wait() != 0) == (stop > 0), job.tails()
        return job.output()


def trained(folder, rank):
    """(number of the batch, samples) of each batch that a rank has trained, in all jobs."""
    return [tuple(json.loads(line)[2:]) for line in (folder / f"rank-{rank}").read_text().splitlines()]


def logs(folder, rank):
    """Epoch and logs of each ``on_epoch_end`` of a rank, in all jobs."""
    return [json.loads(line) for line in (folder / f"logs-{rank}").read_text().splitlines()]


def ended(folder, rank):
    """The history and the weights of a rank at the end."""
    with np.load(folder / f"weights-{rank}.npz") as weights:
        return json.loads((folder / f"history-{rank}.json").read_text()), [weights[name].tobytes() for name in weights]


@pytest.mark.parametrize("api", kerases.NAMES)
@pytest.mark.full
def test_every_item_exactly_once_per_epoch_through_twenty_kills(api, tmp_path):
    items, batch, epochs = 103, 10, 3  # 11 batches in each epoch, the last of 3 samples
    stops = [1, 2, 4, 5, 7, 8, 10, 11, 12, 14, 15, 17, 19, 21, 22, 23, 25, 27, 30, 32]
    for stop in stops:
        train(tmp_path, api, 0, items, batch, epochs, stop)
    train(tmp_path, api, 0, items, batch, epochs)
    samples.assert_each_once(tmp_path, items, epochs)
    train(tmp_path / "whole", api, 0, items, batch, epochs)
    assert samples.lines(tmp_path) == samples.lines(tmp_path / "whole"), "the same samples at each step"
    assert ended(tmp_path, 0) == ended(tmp_path / "whole", 0)


@pytest.mark.parametrize("api", [pytest.param(name, marks=pytest.mark.full) for name in kerases.NAMES])
def test_every_item_exactly_once_through_4_3_2_ranks_within_one_epoch(api, tmp_path):
    items, batch = 125, 12  # 11 steps in each epoch, the last of 5 samples, which no number of ranks divides
    for ranks, stop in [(4, 3), (3, 7), (2, 0)]:
        train(tmp_path, api, ranks, items, batch, 2, stop)
    samples.assert_each_once(tmp_path, items, 2)


@pytest.mark.full
def test_every_item_exactly_once_when_two_ranks_become_one(tmp_path):
    for ranks, stop in [(2, 4), (0, 0)]:
        train(tmp_path, "keras", ranks, 45, 6, 2, stop)
    samples.assert_each_once(tmp_path, 45, 2)


@pytest.mark.full
def test_every_item_exactly_once_while_the_batch_grows_and_shrinks(tmp_path):
    """On 1, 2 and 3 ranks. Of what the jobs before the second and the last one have trained, less than a batch of theirs counts. No stop
    is at an epoch's end, and so each batch that was trained has its checkpoint."""
    for ranks, batch, stop in [(0, 6, 1), (2, 24, 1), (3, 48, 2), (2, 12, 11), (0, 60, 0)]:
        train(tmp_path, "keras", ranks, 120, batch, 2, stop)
    for epoch in range(2):
        found = [
            sample
            for file in tmp_path.glob("rank-?")
            for line in map(json.loads, file.read_text().splitlines())
            if line[0] == epoch
            for sample in line[3]
        ]
        assert sorted(found) == list(range(120)), f"epoch {epoch}"


SAMPLES, SHARED, STEPS = 54, 12, 5  # divisible by 1, 2 and 3 ranks, the last step of 6 too


@pytest.fixture(scope="module")
def killed(tmp_path_factory, api_name):
    """What two ranks have left that were killed after two of five steps of the second epoch."""
    folder = tmp_path_factory.mktemp(api_name) / "run"
    train(folder, api_name, 2, SAMPLES, SHARED, 3, stop=7)
    return folder


@pytest.fixture(params=kerases.NAMES, scope="module")
def api_name(request):
    """The name of each Keras, for jobs."""
    return request.param


@pytest.mark.full
def test_each_ranks_logs_of_a_resumed_epoch_equal_the_uninterrupted_ones(killed, api_name, tmp_path):
    """Each rank's running means are of its own samples."""
    run, whole = shutil.copytree(killed, tmp_path / "run"), tmp_path / "whole"
    said = train(run, api_name, 2, SAMPLES, SHARED, 3)
    assert "epoch 2 of 3 goes on with batch 3" in said and "those of rank 0" not in said
    train(whole, api_name, 2, SAMPLES, SHARED, 3)
    for rank in range(2):
        assert logs(run, rank) == logs(whole, rank) and [epoch for epoch, _ in logs(run, rank)] == [0, 1, 2]
        assert ended(run, rank) == ended(whole, rank)
    assert all(
        one[1]["target"] != other[1]["target"] for one, other in zip(logs(whole, 0), logs(whole, 1), strict=True)
    )


@pytest.mark.full
@pytest.mark.parametrize("ranks", [1, 3])
def test_another_number_of_ranks_goes_on_with_rank_0s_running_means(killed, api_name, ranks, tmp_path):
    run = shutil.copytree(killed, tmp_path / "run")
    said = train(run, api_name, ranks, SAMPLES, SHARED, 3)
    told = f"the metrics of epoch 2 go on from those of rank 0 on all ranks: 2 ranks have begun the epoch, and {ranks} go on"
    assert said.count(told) == 1
    numbers = np.arange(SAMPLES)
    targets = numbers + np.random.default_rng(0).random((SAMPLES, 3)).sum(1)  # as in the job
    before = [sample for number, one in trained(killed, 0) if number > STEPS for sample in one]
    assert len(before) == 2 * SHARED // 2
    for rank in range(ranks):
        own = [sample for number, one in trained(run, rank) if 7 < number <= 2 * STEPS for sample in one]
        assert len(own) == (2 * SHARED + SHARED // 2) // ranks
        assert dict(logs(run, rank))[1]["target"] == pytest.approx(targets[before + own].mean(), rel=1e-5)
        (epochs, history), _ = ended(run, rank)
        assert epochs == [0, 1, 2] and history["target"][0] == dict(logs(killed, 0))[0]["target"]


@pytest.mark.full
def test_ranks_that_accumulate_gradients_go_on_with_the_right_batch(api_name, tmp_path):
    """Three batches for an update: the newest checkpoints are those after batches 3, 6 and 12."""
    for stop in (4, 8, 14, 0):
        train(tmp_path, api_name, 2, SAMPLES, SHARED, 3, stop, accumulated=3)
    samples.assert_each_once(tmp_path, SAMPLES, 3)
    whole = tmp_path / "whole"
    train(whole, api_name, 2, SAMPLES, SHARED, 3, accumulated=3)
    assert samples.lines(tmp_path) == samples.lines(whole)
    for rank in range(2):
        assert dict(logs(tmp_path, rank)) == dict(logs(whole, rank)) and ended(tmp_path, rank) == ended(whole, rank)
    assert [info.step for info in deepfreeze.checkpoints(tmp_path / "run")][-1] == 5, "15 batches"
