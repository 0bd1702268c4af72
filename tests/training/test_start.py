"""A job's start: what every rank is refused together, and that nothing is held or moved then."""

from __future__ import annotations

import pytest

from deepfreeze.errors import LockedError, NotFoundError, RunError, WorldError
from deepfreeze.notices import unheard
from deepfreeze.ranks.nodes import Node
from deepfreeze.store.lock import Lock
from deepfreeze.store.run import Run
from deepfreeze.store.writable_run import WritableRun
from deepfreeze.thaw.extent_table import ExtentTable
from deepfreeze.thaw.read import TensorReader
from deepfreeze.tiers import LocalTier, tiers
from deepfreeze.training.start import Start
from tests.support import files, restart, threads
from tests.support.private import read_private


class Failing(restart.Newest):
    """Values that one rank can't take over."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def assign(self, step: int) -> None:
        if self._rank == 1:
            raise MemoryError("no room")


def start(*paths, values=lambda rank: restart.Newest(), **options):
    """What each rank, with a path of its own, comes to."""

    def rank(world):
        return Start.begin(str(paths[world.rank]), values(world.rank), world, unheard, local=None, **options)

    return threads.run(len(paths), rank)


@pytest.mark.parametrize("there", [True, False], ids=["another-run", "no-run"])
def test_ranks_that_see_different_directories_are_refused_on_every_rank(tmp_path, there):
    first, second = tmp_path / "first", tmp_path / "second"
    run = WritableRun.open_or_make(first)
    second.mkdir()
    if there:
        WritableRun.open_or_make(second)
    at_rank_0, at_rank_1 = start(first, second)
    assert isinstance(at_rank_1, RunError if there else NotFoundError) and str(second) in str(at_rank_1)
    assert isinstance(at_rank_0, WorldError) and "rank 1 failed" in str(at_rank_0) and str(second) in str(at_rank_0)
    if there:
        assert f"run {run.run_id}, which rank 0 has there" in str(at_rank_1) and "storage that all ranks share" in str(
            at_rank_1
        )
    Lock.acquire(first).release()


def test_the_lock_is_held_from_a_start_to_its_close_and_by_rank_0_alone(tmp_path):
    first, second = start(tmp_path / "run", tmp_path / "run")
    assert second.lock is None and first.target == second.target and first.step == 0
    with pytest.raises(LockedError):
        Lock.acquire(tmp_path / "run")
    for begun in (second, first):
        begun.close()
    Lock.acquire(tmp_path / "run").release()


def test_a_rank_that_can_not_take_the_values_over_ends_the_start(tmp_path):
    """A rank that can't take the values over ends the start on all ranks, and no checkpoint is moved."""
    run = files.write_run(tmp_path / "run")
    for step in (10, 20):
        files.write_checkpoint(run, step)
    at_rank_0, at_rank_1 = start(run, run, values=Failing)
    assert isinstance(at_rank_1, MemoryError) and isinstance(at_rank_0, WorldError) and "no room" in str(at_rank_0)
    assert WritableRun.open(run).committed() == [10, 20]
    Lock.acquire(run).release()


class Locked(LocalTier):
    """A tier that one node can't clear."""

    def clear(self, run_id: str) -> None:
        if self.share is None:
            raise PermissionError(str(self.base))


def test_a_tier_that_one_node_can_not_clear_ends_the_start_on_all_ranks(tmp_path, monkeypatch):
    shares = [0.5, None]  # tiers are made by rank 0 first, the ranks take turns
    monkeypatch.setattr(tiers, "TIERS", {"mine": lambda: Locked(tmp_path / "node", shares.pop(0))})

    def rank(world):
        run = str(tmp_path / "run")
        return Start.begin(run, restart.Newest(), world, unheard, local="auto", node=Node(f"node-{world.rank}", ""))

    at_rank_0, at_rank_1 = threads.run(2, rank)
    assert isinstance(at_rank_1, PermissionError) and isinstance(at_rank_0, WorldError)
    assert "rank 1 failed" in str(at_rank_0)
    Lock.acquire(tmp_path / "run").release()


class Readers(restart.Newest):
    """Values that are read as a model's are: with the table that rank 0 has read, and the rank's own record."""

    def __init__(self, run, rank):
        self.run, self.rank = run, rank

    def table(self, step):
        return ExtentTable.read(Run.open(self.run), step)

    def read(self, step, table):
        with TensorReader(Run.open(self.run), step, table) as tensors:
            for name in tensors:
                tensors[name]
        read_private(self.run, step, self.rank)


@pytest.mark.parametrize(("world", "version", "opens"), [(4, 1, 8), (64, 1, 128), (4, 2, 5), (64, 2, 65)])
def test_the_ranks_of_a_start_open_few_records(tmp_path, opened, world, version, opens):
    """Counted: rank 0 reads all records and sends what they say to the others, each of which reads its own. In version 2 all
    records are one file, which each rank opens once, and rank 0 twice."""
    run = files.write_run(tmp_path / "run")
    files.write_checkpoint(run, 40, files.sample(world=world, version=version))
    opened.clear()
    starts = restart.begin(tmp_path, world, values=lambda rank: Readers(run, rank))
    for start in starts:
        assert start.resumed == 40
        start.close()
    assert sum(path.endswith((".record", "records")) for path in opened) == opens
