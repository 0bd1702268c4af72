"""The solver says so when it is stopped or its time is over. Where one of its methods fails, the solver takes another one."""

from __future__ import annotations

import random
import threading

import pytest

from deepfreeze.plan.step.compact_program import CompactProgram
from deepfreeze.plan.step.highs import LinearProgram, Solver, Stopped
from deepfreeze.plan.step.question import Question, SavedTensor, StepWindow
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


def test_a_program_at_which_the_interior_point_method_fails_is_solved():
    """The store takes a fifth of the tensors in a step. HiGHS 1.15's interior point method ends with an error at this program, where
    the simplex method proves that it has no solution."""
    seconds, capacities, bases = (4, 2, 4, 3, 2), (0, 0, 192_197, 0, 192_197), (384_000, 192_000, 0, 192_000, 384_000)
    windows = tuple(StepWindow(*one) for one in zip(seconds, capacities, (0.5,) * 5, bases, strict=True))
    sizes = (960_000, 3, 3), (576_000, 2, 2), (384_000, 3, None)
    tensors = tuple(SavedTensor(f"t{number}", *one) for number, one in enumerate(sizes))
    asked = Question(windows, tensors, carry=192_000)
    found = Solver().solve(CompactProgram(asked, [3, 2, 1], fine=True).least_peak())
    assert found.is_impossible and found.values is None
