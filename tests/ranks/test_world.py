"""What ranks tell each other at the start: results to all, errors to all."""

import sys
import types

import pytest

from deepfreeze.errors import OptionError, RunError, WorldError
from deepfreeze.ranks.world import MpiWorld, OneRank, current, on_rank_0, together
from tests.support.refusals import refused
from tests.support.threads import run


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


def communicator(size, **more):
    """What is asked of one of mpi4py's."""
    calls = {"Get_rank": lambda: 0, "Get_size": lambda: size, "bcast": None, "allgather": lambda value: [value] * size}
    return types.SimpleNamespace(**{**calls, "bcast": lambda value, root: value, **more})


@pytest.mark.parametrize(
    ("comm", "found"),
    [
        (3, "3, without Get_rank()"),
        ("COMM_WORLD", "'COMM_WORLD', without Get_rank()"),
        (types.SimpleNamespace(allgather=len), "without Get_rank()"),
        (communicator(2, bcast=None), "without bcast()"),
    ],
)
def test_a_world_that_is_no_communicator_is_refused(comm, found):
    expected, todo = 'an mpi4py communicator, or "alone"', "mpi4py.MPI.COMM_WORLD"
    refused(lambda: current(comm), OptionError, where="world=", expected=expected, found=found, todo=todo)


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_a_communicator_has_as_many_ranks_as_horovod_where_that_is_used(size, monkeypatch):
    assert isinstance(current(communicator(size)), MpiWorld)
    horovod = types.SimpleNamespace(is_initialized=lambda: True, size=lambda: 2, rank=lambda: 0)
    monkeypatch.setitem(sys.modules, "horovod.tensorflow", horovod)
    if size == 2:
        assert isinstance(current(communicator(size)), MpiWorld)
        return
    expected, todo = "a communicator of Horovod's 2 ranks", "leave world= out"
    refused(
        lambda: current(communicator(size)),
        OptionError, where="world=", expected=expected, found=f"one of {size}", todo=todo,
    )  # fmt: skip
