"""Linear programs with integers, for the planner, and their solution by HiGHS (``pip install "deepfreeze[plan]"``).

HiGHS is imported inside of the function that solves. So everything else of the planner works without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from deepfreeze.errors import InstallError

INFINITE = float("inf")
_SEED = 1
_LEAST = 0.5  # seconds for a program where no time is left: enough for small ones


@dataclass
class LinearProgram:
    """Minimise costs x values over columns (the unknowns), where each row's weighted sum of columns lies between two numbers.

    It is built column by column and row by row. Columns and rows are numbered from 0, in the order in which they were added."""

    costs: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)
    _starts: list[int] = field(default_factory=lambda: [0])
    _columns: list[int] = field(default_factory=list)
    _weights: list[float] = field(default_factory=list)

    def column(self, lower: float, upper: float, cost: float = 0.0, integer: bool = False) -> int:
        """Adds an unknown with these bounds; its number."""
        self.costs.append(cost)
        self.lower.append(lower)
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.costs) - 1

    def row(self, lower: float, upper: float, terms: Sequence[tuple[int, float]]) -> int:
        """Adds a bound for a sum of ``terms``, which are (column, weight); terms of one column are added up. The row's number."""
        weights: dict[int, float] = {}
        for column, weight in terms:
            weights[column] = weights.get(column, 0.0) + weight
        kept = [(column, weight) for column, weight in weights.items() if weight]
        self._columns += [column for column, _ in kept]
        self._weights += [weight for _, weight in kept]
        self._starts.append(len(self._columns))
        self.row_lower.append(lower)
        self.row_upper.append(upper)
        return len(self.row_lower) - 1

    def matrix(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(start of each row, column of each weight, weights), row by row."""
        return np.array(self._starts, np.int32), np.array(self._columns, np.int32), np.array(self._weights, np.float64)


@dataclass(frozen=True)
class Solution:
    """The outcome of a program.

    - ``values``: of all columns; None if no solution was found.
    - ``cost``: theirs. ``bound``: no solution costs less. Infinite if there is no solution at all.
    - ``is_impossible``: HiGHS has proved that no values satisfy all rows.
    - ``is_best``: the solution is within the gap that was asked for. False where the time was over first."""

    values: np.ndarray | None
    cost: float
    bound: float
    is_impossible: bool
    is_best: bool


class Stopped(Exception):
    """Nobody wants the solution any more."""


class Solver:
    """HiGHS, for one program or for several that share a limit of time."""

    def __init__(self, seconds: float = INFINITE, stop: Callable[[], bool] = lambda: False) -> None:
        """``seconds``: for all programs together; ``stop``: asked while a program is solved, True if nobody wants the solution any more."""
        self._end, self._stop = time.monotonic() + seconds, stop

    @property
    def left(self) -> float:
        """Seconds that are left."""
        return max(0.0, self._end - time.monotonic())

    def raise_if_stopped(self) -> None:
        """``Stopped`` if nobody wants the solution any more."""
        if self._stop():
            raise Stopped

    def part(self, share: float, most: float = INFINITE) -> Solver:
        """A solver with such a share of the time that is left, and with at most so many seconds."""
        return Solver(min(most, self.left * share), self._stop)

    def solve(
        self,
        program: LinearProgram,
        *,
        gap: float = 0.0,
        start: Sequence[float] | np.ndarray | None = None,
        relaxed: bool = False,
    ) -> Solution:
        """Solves a program. The same program and start give the same solution, unless the time is over first. Where the interior point
        method fails, the simplex method solves the program.

        ``gap``: how far from the best a solution may be, as a part of its cost; ``start``: values of all columns from which HiGHS begins,
        if they satisfy the rows; ``relaxed``: integers may be fractions. ``InstallError`` without HiGHS; ``Stopped``."""
        highspy = _highspy()
        solver = highspy.Highs()
        options: dict[str, Any] = {"output_flag": False, "random_seed": _SEED, "threads": 1, "parallel": "off"}
        options |= {"mip_rel_gap": gap, "mip_abs_gap": 0.0, "primal_feasibility_tolerance": 1e-9}
        options |= {"mip_feasibility_tolerance": 1e-9, "time_limit": max(_LEAST, self.left)}
        is_integer = any(program.integer) and not relaxed
        if not any(program.integer):
            # The interior point method takes a third of the simplex method's time for these programs. Relaxed ones are asked for by
            # benchmarks alone. Most of those have no solution, which the simplex method proves sooner.
            options["solver"] = "ipm"
        for name, value in options.items():
            solver.setOptionValue(name, value)
        solver.passModel(_model(program, relaxed, highspy))
        if start is not None:
            at = np.arange(len(start), dtype=np.int32)
            solver.setSolution(len(at), at, np.asarray(start, np.float64))
        for event in (solver.cbSimplexInterrupt, solver.cbIpmInterrupt, solver.cbMipInterrupt):
            event.subscribe(lambda asked: asked.interrupt(self._stop()))
        solver.run()
        if solver.getModelStatus() == highspy.HighsModelStatus.kSolveError:
            # The interior point method has failed, as it does at some programs that have no solution.
            solver.clearSolver()
            solver.setOptionValue("solver", "simplex")
            solver.run()
        self.raise_if_stopped()
        return _solution(solver, is_integer, highspy)


def _highspy() -> Any:
    try:
        import highspy
    except ImportError as error:
        raise InstallError(
            where="plan",
            expected="HiGHS, which solves the planner's programs",
            found=f"no module highspy ({error})",
            todo='install it: pip install "deepfreeze[plan]". Saved plans and the greedy plan need no HiGHS',
        ) from error
    return highspy


def _solution(solver: Any, is_integer: bool, highspy: Any) -> Solution:
    """The outcome of a solver that has run."""
    status, info, found = solver.getModelStatus(), solver.getInfo(), highspy.HighsModelStatus
    # Every column has bounds or a cost that is not negative, so no program here is unbounded.
    if status in (found.kInfeasible, found.kUnboundedOrInfeasible):
        return Solution(None, INFINITE, INFINITE, is_impossible=True, is_best=False)
    is_best = status == found.kOptimal
    # 2: HiGHS's number for a solution that satisfies all rows.
    if info.primal_solution_status != 2:
        return Solution(None, INFINITE, info.mip_dual_bound if is_integer else 0.0, is_impossible=False, is_best=False)
    cost = float(info.objective_function_value)
    bound = float(info.mip_dual_bound) if is_integer else cost
    return Solution(np.array(solver.getSolution().col_value), cost, bound, is_impossible=False, is_best=is_best)


def _model(program: LinearProgram, relaxed: bool, highspy: Any) -> Any:
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.costs), len(program.row_lower)
    model.col_cost_ = np.array(program.costs)
    model.col_lower_, model.col_upper_ = np.array(program.lower), np.array(program.upper)
    model.row_lower_, model.row_upper_ = np.array(program.row_lower), np.array(program.row_upper)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = program.matrix()
    if any(program.integer) and not relaxed:
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[integer] for integer in program.integer]
    return model
