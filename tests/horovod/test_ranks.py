"""Real Horovod jobs of several ranks: each writes its share, and any number of ranks restores it."""

import numpy as np
import pytest

import deepfreeze
from deepfreeze.inspect.verify import verify
from tests.support import h5, kerases, pages
from tests.support.horovod import horovod
from tests.support.private import read_private

pytestmark = [pytest.mark.ranks, pytest.mark.tensorflow]


def held(folder, rank):
    with np.load(folder / f"rank-{rank}.npz") as arrays:
        return dict(arrays)


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


def assert_restored(job, run, step, out, **options):
    """Any number of ranks resumes from that checkpoint, with what is in it."""
    out.mkdir()
    stats = job.run("ranks", folder=run.parent, steps=step, every=step, out=out, **options)
    file = h5.datasets(run / f"step-{step:010d}" / "model.weights.h5")
    for rank in range(job.size):
        assert stats[rank]["resumed"] == step
        mine = held(out, rank)
        for path, array in file.items():
            if not path.startswith("metrics"):
                assert mine[path].tobytes() == array.tobytes(), f"rank {rank}: {path}"


def is_statistic(path):
    return "batch_normalization" in path and path.endswith(("vars/2", "vars/3"))


@pytest.fixture(
    scope="module",
    params=[*kerases.NAMES, pytest.param(f"{kerases.NAMES[-1]} by horovodrun", marks=pytest.mark.full)],
    ids=lambda name: name.replace(" ", "-"),
)
def two_ranks(request, two, tmp_path_factory):
    """A Keras, a folder, and what each rank returned."""
    api, _, launcher = request.param.partition(" by ")
    folder = tmp_path_factory.mktemp(api)
    training = {"name": "ranks", "api": api, "folder": folder, "steps": 6, "every": 3}
    if not launcher:
        return api, folder, two.run(**training)
    with horovod(2, launcher) as job:
        return api, folder, job.run(**training)


def test_each_rank_writes_its_share_and_the_file_is_what_the_ranks_held(two_ranks):
    _api, folder, (first, second) = two_ranks
    assert [info.step for info in deepfreeze.checkpoints(folder / "run")] == [3, 6]
    assert_is(folder / "run", 6, [held(folder, 0), held(folder, 1)])
    assert verify(folder / "run").ok
    assert second["nbytes"] > 0.4 * (first["nbytes"] + second["nbytes"]), "both ranks write"
    assert first["committed"] == second["committed"] == [3, 6]
    assert len(list((folder / "run" / "events").iterdir())) == 1, "rank 0 alone keeps the events"


def test_no_two_ranks_write_bytes_of_one_page(two_ranks):
    # A network file system's client may write a page whole, with the neighbour's bytes as it read them before.
    _, folder, _ = two_ranks
    assert [pages.shared(folder / "run", step) for step in (3, 6)] == [[], []]


@pytest.mark.full
@kerases.needs_keras_3
def test_ranks_cut_their_shares_at_the_stripes_that_rank_0_finds(two, tmp_path):
    """The large tensors have 24 stripes of 64 KiB: one has bytes of both ranks, and another is the one that the small tensors end in."""
    run, stripe = tmp_path / "run", 65536
    first, second = two.run("ranks", api="keras", folder=tmp_path, steps=4, every=2, kind="dense", stripe=stripe)
    assert first["committed"] == second["committed"] == [2, 4]
    assert verify(run, 4).ok
    assert_is(run, 4, [held(tmp_path, 0), held(tmp_path, 1)])
    assert pages.shared(run, 4) == []
    shared = pages.shared(run, 4, stripe)
    assert len(shared) <= 3, shared
    assert abs(first["nbytes"] - second["nbytes"]) < 0.2 * first["nbytes"]


def test_batchnorm_statistics_are_rank_0s_and_no_mixture(two_ranks):
    _, folder, _ = two_ranks
    file = h5.datasets(folder / "run" / "step-0000000006" / "model.weights.h5")
    statistics = [path for path in file if is_statistic(path)]
    assert len(statistics) == 4
    zero, one = held(folder, 0), held(folder, 1)
    assert all(file[path].tobytes() == zero[path].tobytes() for path in statistics)
    assert any(zero[path].tobytes() != one[path].tobytes() for path in statistics), "the ranks' own differ"


@pytest.mark.full
def test_another_number_of_ranks_restores_it_bit_exactly(two_ranks, tmp_path):
    """Two of the nine combinations under real Horovod; rank processes without TensorFlow cover all of them."""
    api, folder, _ = two_ranks
    with horovod({"keras": 3, "tf_keras": 1}[api]) as job:
        assert_restored(job, folder / "run", 6, tmp_path / "out", api=api)


@pytest.mark.full
@kerases.needs_keras_3
def test_every_rank_keeps_its_own_seeds_and_a_third_gets_others(two, tmp_path):
    run = tmp_path / "run"
    two.run("ranks", api="keras", folder=tmp_path, steps=4, every=2, kind="dense")
    zero, one = (read_private(run, 4, rank) for rank in (0, 1))
    assert zero.keys() == one.keys() and zero
    assert all(zero[name].tolist() != one[name].tolist() for name in zero)
    assert_is(run, 4, [held(tmp_path, 0), held(tmp_path, 1)])
    with horovod(3) as three:
        assert_restored(three, run, 4, tmp_path / "resumed", api="keras", kind="dense")
    seeds = [held(tmp_path / "resumed", rank)["seeds/0"].tolist() for rank in range(3)]
    assert seeds[:2] == [next(iter(s.values())).tolist() for s in (zero, one)]
    assert seeds[2] not in seeds[:2]
