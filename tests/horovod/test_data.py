"""Real jobs over ``deepfreeze.data.Resumable`` that are killed inside of an epoch, and go on with other numbers of ranks: every sample that
they train is written down."""

import json

import pytest

from tests.support import jobs, kerases, samples

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]


def train(folder, api, ranks, items, batch, epochs, stop=0):
    """Runs tests/jobs/resumable.py until the end of step ``stop``, at which its ranks are killed; 0: until training has ended."""
    folder.mkdir(exist_ok=True)
    with jobs.job("resumable.py", api, folder, items, batch, epochs, stop, ranks=ranks) as job:
        assert (job.wait() != 0) == (stop > 0), job.tails()


@pytest.mark.parametrize("api", kerases.NAMES)
@pytest.mark.full
@pytest.mark.timeout(600)
def test_every_item_exactly_once_per_epoch_through_twenty_kills(api, tmp_path):
    items, batch, epochs = 103, 10, 3  # 11 batches in each epoch, the last of 3 samples
    stops = [1, 2, 4, 5, 7, 8, 10, 11, 12, 14, 15, 17, 19, 21, 22, 23, 25, 27, 30, 32]
    for stop in stops:
        train(tmp_path, api, 0, items, batch, epochs, stop)
    train(tmp_path, api, 0, items, batch, epochs)
    samples.assert_each_once(tmp_path, items, epochs)
    train(tmp_path / "whole", api, 0, items, batch, epochs)
    assert samples.lines(tmp_path) == samples.lines(tmp_path / "whole"), "the same samples at each step"
    histories = [json.loads((folder / "history.json").read_text()) for folder in (tmp_path, tmp_path / "whole")]
    for history in histories:
        del history["deepfreeze_blocking"], history["deepfreeze_checkpoints"]
    assert histories[0] == histories[1]


@pytest.mark.parametrize("api", [pytest.param(name, marks=pytest.mark.full) for name in kerases.NAMES])
@pytest.mark.timeout(600)
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
