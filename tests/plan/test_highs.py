"""The solver is stopped, or its time is over, and says so."""

from __future__ import annotations

import random
import threading

import pytest

from deepfreeze.plan.step.highs import LinearProgram, Solver, Stopped
from tests.support.seed import SEED


def long_one() -> LinearProgram:
    """A program with many knapsacks, which HiGHS does not solve within minutes."""
    rng, program = random.Random(SEED), LinearProgram()
    columns = [program.column(0, 1, -rng.randint(100, 200), integer=True) for _ in range(400)]
    for _ in range(60):
        program.row(0, 12_000, [(column, rng.randint(50, 150)) for column in columns])
    return program


def test_a_solver_that_is_asked_to_stop_does():
    asked, stop = threading.Event(), threading.Event()

    def is_stopped() -> bool:
        asked.set()
        return stop.is_set()

    outcome = []

    def work() -> None:
        with pytest.raises(Stopped):
            Solver(stop=is_stopped).solve(long_one())
        outcome.append("stopped")

    thread = threading.Thread(target=work)
    thread.start()
    assert asked.wait(60)
    stop.set()
    thread.join()
    assert outcome == ["stopped"]


def test_the_best_so_far_is_taken_when_the_time_is_over():
    program = long_one()
    nothing = [0.0] * len(program.costs)
    found = Solver(0.5).solve(program, start=nothing)
    assert found.values is not None and not found.is_best and found.cost <= 0.0
    assert found.bound <= found.cost


def test_all_programs_of_a_solver_share_its_time():
    solver = Solver(0.2)
    assert solver.part(0.5).left <= 0.1
    solver.solve(long_one())
    assert solver.left == 0.0
