"""What ranks tell each other at the start: results to all, errors to all."""

import threading

import pytest

from deepfreeze.core.errors import OptionError, RunError, WorldError
from deepfreeze.core.world import OneRank, current, on_rank_0, together


class Threads:
    """A world of threads in one process."""

    def __init__(self, rank, size, board, barrier):
        self.rank, self.size, self._board, self._barrier = rank, size, board, barrier

    def gather(self, value):
        self._board[self.rank] = value
        self._barrier.wait(10)
        everything = [self._board[rank] for rank in range(self.size)]
        self._barrier.wait(10)
        return everything

    def broadcast(self, value):
        return self.gather(value)[0]


def run(size, action):
    board, barrier, results = {}, threading.Barrier(size), {}

    def rank(r):
        try:
            results[r] = action(Threads(r, size, board, barrier))
        except Exception as error:
            results[r] = error

    threads = [threading.Thread(target=rank, args=(r,)) for r in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return [results[r] for r in range(size)]


def bad():
    return RunError(where="runs/x", expected="a directory", found="a file", todo="choose another path")


def test_an_error_on_rank_0_reaches_every_rank():
    def action(world):
        def fail():
            raise bad()

        return on_rank_0(world, fail)

    first, second, third = run(3, action)
    assert isinstance(first, RunError)
    assert isinstance(second, WorldError) and isinstance(third, WorldError)
    assert "rank 0 failed" in str(second) and "runs/x: expected a directory; found a file" in str(second)


def test_an_error_on_another_rank_names_that_rank_everywhere():
    def action(world):
        def fail():
            if world.rank == 2:
                raise ValueError("boom")

        return together(world, fail)

    errors = run(3, action)
    assert isinstance(errors[2], ValueError)
    assert all("rank 2 failed" in str(error) and "boom" in str(error) for error in errors[:2])


def test_the_result_of_rank_0_reaches_every_rank():
    assert run(3, lambda world: on_rank_0(world, lambda: world.rank + 40)) == [40, 40, 40]


def test_without_horovod_the_world_is_one_rank_also_under_mpirun(monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    world = current()
    assert isinstance(world, OneRank) and (world.rank, world.size) == (0, 1)


def test_a_world_that_is_no_communicator_is_refused():
    with pytest.raises(OptionError, match="expected an mpi4py communicator; found 3"):
        current(3)
