"""Real Horovod jobs of several ranks: each writes its share, and any number of ranks restores it."""

import json

import numpy as np
import pytest

import deepfreeze
from deepfreeze.thaw.read import read_private
from deepfreeze.thaw.verify import verify
from tests.support import h5, jobs, kerases, pages


def held(folder, rank):
    with np.load(folder / f"rank-{rank}.npz") as arrays:
        return dict(arrays)


def stats(folder, rank):
    return json.loads((folder / f"rank-{rank}.json").read_text())


def assert_is(run, step, holders):
    """The checkpoint is what the ranks (their arrays by path) held: weights of any, the rest of rank 0's, own seeds."""
    file = h5.datasets(run / f"step-{step:010d}" / "model.weights.h5")
    for path, array in file.items():
        assert array.tobytes() == holders[0][path].tobytes(), path
    for rank, arrays in enumerate(holders):
        seeds = list(read_private(run, step, rank).values())
        mine = [arrays[f"seeds/{n}"] for n in range(len(seeds))]
        assert [s.tolist() for s in seeds] == [s.tolist() for s in mine]
        for path, array in arrays.items():
            if path.startswith("layers") and not is_statistic(path):
                assert array.tobytes() == file[path].tobytes(), f"rank {rank}: {path} is no replica"


def is_statistic(path):
    return "batch_normalization" in path and path.endswith(("vars/2", "vars/3"))


LAUNCHERS = {"keras": "mpirun", "tf_keras": "horovodrun"}


@pytest.fixture(scope="module", params=kerases.NAMES)
def two_ranks(request, tmp_path_factory):
    api = request.param
    folder = tmp_path_factory.mktemp(api)
    jobs.run("ranks.py", api, folder, 6, 3, ranks=2, launcher=LAUNCHERS[api])
    return api, folder


def test_each_rank_writes_its_share_and_the_file_is_what_the_ranks_held(two_ranks):
    _api, folder = two_ranks
    assert [info.step for info in deepfreeze.checkpoints(folder / "run")] == [3, 6]
    assert_is(folder / "run", 6, [held(folder, 0), held(folder, 1)])
    assert verify(folder / "run").ok
    first, second = stats(folder, 0)["nbytes"], stats(folder, 1)["nbytes"]
    assert second > 0.4 * (first + second), "both ranks write"
    assert stats(folder, 0)["committed"] == stats(folder, 1)["committed"] == [3, 6]


def test_no_two_ranks_write_bytes_of_one_page(two_ranks):
    # A network file system's client may write a page whole, with the neighbour's bytes as it read them before.
    _, folder = two_ranks
    assert [pages.shared(folder / "run", step) for step in (3, 6)] == [[], []]


def test_batchnorm_statistics_are_rank_0s_and_no_mixture(two_ranks):
    _, folder = two_ranks
    file = h5.datasets(folder / "run" / "step-0000000006" / "model.weights.h5")
    statistics = [path for path in file if is_statistic(path)]
    assert len(statistics) == 4
    zero, one = held(folder, 0), held(folder, 1)
    assert all(file[path].tobytes() == zero[path].tobytes() for path in statistics)
    assert any(zero[path].tobytes() != one[path].tobytes() for path in statistics), "the ranks' own differ"


def test_another_number_of_ranks_restores_it_bit_exactly(two_ranks, tmp_path):
    # Two of the nine combinations under real Horovod; rank processes without TensorFlow cover all of them.
    api, folder = two_ranks
    ranks = {"keras": 3, "tf_keras": 1}[api]
    jobs.run("ranks.py", api, folder, 6, 3, f"out={tmp_path}", ranks=ranks)
    file = h5.datasets(folder / "run" / "step-0000000006" / "model.weights.h5")
    for rank in range(ranks):
        assert stats(tmp_path, rank)["resumed"] == 6
        mine = held(tmp_path, rank)
        for path, array in file.items():
            if not path.startswith("metrics"):
                assert mine[path].tobytes() == array.tobytes(), f"rank {rank}: {path}"


@kerases.needs_keras_3
def test_every_rank_keeps_its_own_seeds(tmp_path):
    jobs.run("ranks.py", "keras", tmp_path, 4, 2, "kind=dense", ranks=2, launcher="horovodrun")
    zero, one = (read_private(tmp_path / "run", 4, rank) for rank in (0, 1))
    assert zero.keys() == one.keys() and zero
    assert all(zero[name].tolist() != one[name].tolist() for name in zero)
    assert_is(tmp_path / "run", 4, [held(tmp_path, 0), held(tmp_path, 1)])
    resumed = tmp_path / "resumed"
    resumed.mkdir()
    jobs.run("ranks.py", "keras", tmp_path, 4, 2, "kind=dense", f"out={resumed}", ranks=3)
    seeds = [held(resumed, rank)["seeds/0"].tolist() for rank in range(3)]
    assert seeds[:2] == [next(iter(s.values())).tolist() for s in (zero, one)]
    assert seeds[2] not in seeds[:2]
