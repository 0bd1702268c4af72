"""The compact form of Checkflow's program: one count of parts per tensor and window, instead of three yes-or-no unknowns per part and
operator (Checkflow 2025, (2) to (12); ``paper_program`` has that form, and a test holds both to the same optimum).

Each tensor is cut into k equal parts. Unknowns, none of which ever falls from one window to the next: a, parts copied by the end of a
window; b, copies written by its end; d, parts written without a copy by its end. Bytes are counted in units of the largest
part, because the solver takes very small numbers for zeros.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np

from deepfreeze.plan.step import usage
from deepfreeze.plan.step.highs import INFINITE, LinearProgram
from deepfreeze.plan.step.parts import PlannedPart, in_order, pieces
from deepfreeze.plan.step.question import Question

_Terms = list[tuple[int, float]]
# Added before a number is rounded down. What is copied must not fall behind what is written.
_UP, _DOWN = 0.51, 0.49
ROUNDED = 2  # bytes of a tensor: by so many a window may exceed a bound because parts have whole bytes
_HURRY = 2.0  # the cost that is added for a byte which is copied in a window that is too short for it


@dataclass
class Counts:
    """The unknowns of one kind of one tensor: ``columns[i]`` counts parts by the end of window ``windows[i]``."""

    windows: range
    columns: list[int] = field(default_factory=list)

    def by(self, window: int) -> list[int]:
        """The column with the count by the end of any window, in a list: empty before the first one."""
        return [self.columns[min(window, self.windows.stop - 1) - self.windows.start]] if self.has(window) else []

    def has(self, window: int) -> bool:
        """True if there can be any by the end of the window."""
        return len(self.windows) > 0 and window >= self.windows.start

    @property
    def total(self) -> list[int]:
        """The column with the count at the end, in a list: empty without windows."""
        return self.columns[-1:]


class CompactProgram:
    """The program of a question whose tensors are cut into ``parts`` parts each. ``copied``, ``written``, ``direct``: the unknowns a, b and
    d of each tensor; ``peak``: the column of the memory that is held; ``scale``: the column by which the store's rate is multiplied, which
    is 1 unless ``least_rate`` makes it the unknown; ``left``: what each window leaves to the next one of the bytes that can be written;
    ``unit``: bytes.

    ``fine=True``: the program without integers. Its counts are fractions, so parts may end anywhere, and be as small as they like. Else the
    bytes of a part are rounded up, because parts of a tensor may differ by a byte."""

    def __init__(self, question: Question, parts: Sequence[int], fine: bool = False) -> None:
        self.question, self.parts, self.fine = question, list(parts), fine
        sizes = [tensor.nbytes / k for tensor, k in zip(question.tensors, parts, strict=True)]
        whole = [float(size if fine else math.ceil(size)) for size in sizes]
        self.unit = max(whole, default=0.0) or 1.0
        self._bytes, self.sizes = whole, [size / self.unit for size in whole]
        self.program = LinearProgram()
        most = INFINITE if question.memory is None else question.memory / self.unit
        self.peak = self.program.column(question.base / self.unit, most)
        self.scale = self.program.column(1.0, 1.0)
        carry = question.carry / self.unit
        self.left = [self.program.column(0.0, carry) for _ in range(question.horizon)] if carry else []
        self.copied = [
            self._counts(question.copies(tensor), k) for tensor, k in zip(question.tensors, parts, strict=True)
        ]
        self.written = [
            self._counts(question.writes(tensor), k) for tensor, k in zip(question.tensors, parts, strict=True)
        ]
        self.direct = [
            self._counts(question.directs(tensor), k) for tensor, k in zip(question.tensors, parts, strict=True)
        ]
        # window of a period -> (column of the bytes that are copied in it beyond its room for copies, that room, the copies)
        self._hurried: list[tuple[int, float, _Terms]] = []
        self._each_part_once()
        self._bounds()

    # What is asked for: each makes the costs of one question.

    def least_peak(self) -> LinearProgram:
        """As little memory as possible (12)."""
        return self._asked({self.peak: 1.0})

    def least_rate(self) -> LinearProgram:
        """The smallest multiple of the store's rate that does."""
        program = self._asked({self.scale: 1.0}, rate_is_known=False)
        program.lower[self.scale], program.upper[self.scale] = 0.0, INFINITE
        return program

    def least_disturbance(self, most: float) -> LinearProgram:
        """As few bytes as possible that are moved while cores are busy, with at most ``most`` bytes of memory. A byte that is
        copied in a window which is too short for it keeps training waiting, so it costs as much as two bytes more with all cores busy."""
        costs: dict[int, float] = {}
        for size, *kinds in zip(self.sizes, self.copied, self.written, self.direct, strict=True):
            for counts in kinds:
                for window in counts.windows:
                    busy = size * self.question.window(window).busy
                    for column, sign in self._change(counts, window):
                        costs[column] = costs.get(column, 0.0) + sign * busy
        program = self._asked(costs)
        program.upper[self.peak] = min(program.upper[self.peak], most / self.unit)
        self._hurry(program)
        return program

    def calmly(self, values: np.ndarray) -> list[float]:
        """The values of the columns of ``least_disturbance`` for those of an earlier question."""
        excess = [sum(weight * values[one] for one, weight in terms) - room for _, room, terms in self._hurried]
        return [*values, *(max(0.0, float(one)) for one in excess)]

    def earliest_end(self, most: float, disturbance: LinearProgram, limit: float) -> LinearProgram:
        """As early an end as possible, with at most ``most`` bytes of memory and at most ``limit`` of the costs of ``disturbance``."""
        program = self._asked({})
        program.upper[self.peak] = min(program.upper[self.peak], most / self.unit)
        self._hurry(program)
        program.costs = [0.0] * len(program.costs)
        program.row(-INFINITE, limit, list(enumerate(disturbance.costs)))
        before: int | None = None
        for window in range(self.first, self.last + 1):
            goes_on = program.column(0.0, 1.0, self.question.window(window).seconds, integer=True)
            terms = self._bytes_written(window)
            most = self.question.window(window).capacity + self.question.carry
            program.row(-INFINITE, 0.0, [*terms, (goes_on, -most / self.unit)])
            if before is not None:
                program.row(0.0, INFINITE, [(before, 1.0), (goes_on, -1.0)])
            before = goes_on
        return program

    def ending(self, asked: LinearProgram, values: np.ndarray) -> list[float]:
        """The values of the columns of ``earliest_end`` for those of ``least_disturbance``."""
        last = max((part.write for part in self.plan(values)), default=self.first - 1)
        added = len(asked.costs) - len(values)
        return [*values, *(float(self.first + n <= last) for n in range(added))]

    @property
    def first(self) -> int:
        """The first window in which anything can be written."""
        return min((counts.windows.start for counts in (*self.written, *self.direct) if counts.windows), default=0)

    @property
    def last(self) -> int:
        """The last window in which anything can be written."""
        return max((counts.windows.stop - 1 for counts in (*self.written, *self.direct) if counts.windows), default=0)

    # Between values of the unknowns and parts.

    def plan(self, values: np.ndarray) -> list[PlannedPart]:
        """The parts of a solution. Those of a tensor are copied and written in their order; those without a copy come last.
        Without integers a part ends where another window copies the next bytes of the tensor, or writes them. None has more bytes than an
        equal part."""
        made: list[PlannedPart] = []
        for index, tensor in enumerate(self.question.tensors):
            k = self.parts[index]
            whole, largest = (tensor.nbytes, math.ceil(tensor.nbytes / k)) if self.fine else (k, 1)
            copied = self._moved(self.copied[index], values, whole / k, _UP)
            written = self._moved(self.written[index], values, whole / k, _DOWN)
            direct = self._moved(self.direct[index], values, whole / k, _DOWN)
            at = 0  # bytes, or equal parts, that come before
            for copy, write, number in in_order(copied, written, direct, whole):
                own = pieces(tensor.nbytes, k)[at : at + number]
                if self.fine:
                    own = [(at + begin, size) for begin, size in pieces(number, math.ceil(number / largest))]
                made += [PlannedPart(index, begin, nbytes, copy, write) for begin, nbytes in own]
                at += number
        return made

    def values(self, parts: Sequence[PlannedPart], peak: int) -> list[float]:
        """The values of the columns for a plan with as many parts: where HiGHS begins."""
        values = [0.0] * len(self.program.costs)
        values[self.peak], values[self.scale] = peak / self.unit, 1.0
        for column, left in zip(self.left, usage.left_over(self.question, parts).tolist(), strict=False):
            values[column] = max(0.0, left / self.unit)
        for part in parts:
            moves = [(self.direct, part.write)]
            if part.copy is not None:
                moves = [(self.copied, part.copy), (self.written, part.write)]
            for kind, window in moves:
                counts = kind[part.tensor]
                for column in counts.columns[window - counts.windows.start :]:
                    values[column] += 1.0
        return values

    # How it is built.

    def _counts(self, windows: range, most: int) -> Counts:
        counts = Counts(windows, [self.program.column(0.0, most, integer=not self.fine) for _ in windows])
        for earlier, later in zip(counts.columns, counts.columns[1:], strict=False):
            self.program.row(0.0, INFINITE, [(later, 1.0), (earlier, -1.0)])
        return counts

    def _each_part_once(self) -> None:
        for copied, written, direct, k in zip(self.copied, self.written, self.direct, self.parts, strict=True):
            every = [(column, 1.0) for column in (*copied.total, *direct.total)]
            self.program.row(k, k, every)
            self.program.row(
                0.0, 0.0, [*((column, 1.0) for column in written.total), *((column, -1.0) for column in copied.total)]
            )
            for window in written.windows:
                # (7): written behind the window in which it was copied.
                terms = [(column, -1.0) for column in written.by(window)] + [
                    (column, 1.0) for column in copied.by(window - 1)
                ]
                self.program.row(0.0, INFINITE, terms)

    def _bounds(self) -> None:
        horizon = self.question.horizon
        rate: list[_Terms] = [[] for _ in range(horizon)]
        for window in range(self.first, self.last + 1):
            rate[window % horizon] += self._bytes_written(window)
        memory: list[_Terms] = [[] for _ in range(horizon)]
        for size, copied, written in zip(self.sizes, self.copied, self.written, strict=True):
            for window in range(copied.windows.start, written.windows.stop) if copied.windows else ():
                terms = [(column, size) for column in copied.by(window)] + [
                    (column, -size) for column in written.by(window - 1)
                ]
                memory[window % horizon] += terms
        for number in range(horizon):
            window_of = self.question.window(number)
            # (9): no more than the store takes; (10), (11): copies and base are in memory.
            capacity = (self.scale, -window_of.capacity / self.unit)
            self.program.row(-INFINITE, 0.0, [*rate[number], capacity, *self._left(number)])
            self.program.row(-INFINITE, -window_of.base / self.unit, [*memory[number], (self.peak, -1.0)])

    def _hurry(self, program: LinearProgram) -> None:
        """Adds the bytes that are copied in each window beyond those for which it has time. Their columns are the same ones each time."""
        copies: dict[int, _Terms] = {}
        for size, counts in zip(self.sizes, self.copied, strict=True):
            for window in counts.windows:
                terms = [(column, sign * size) for column, sign in self._change(counts, window)]
                copies.setdefault(window % self.question.horizon, []).extend(terms)
        self._hurried = []
        for window, terms in sorted(copies.items()):
            room = self.question.window(window).copy_capacity
            if room is not None:
                excess = program.column(0.0, INFINITE, _HURRY)
                program.row(-INFINITE, room / self.unit, [*terms, (excess, -1.0)])
                self._hurried.append((excess, room / self.unit, terms))

    def _left(self, window: int) -> _Terms:
        """Terms for the bytes that a window leaves to the next one, less those that it has from the one before."""
        if not self.left:
            return []
        before = [(self.left[window - 1], -1.0)] if window or self.question.cyclic else []
        return [(self.left[window], 1.0), *before]

    def _bytes_written(self, window: int) -> _Terms:
        terms: _Terms = []
        for size, *kinds in zip(self.sizes, self.written, self.direct, strict=True):
            for counts in kinds:
                if window in counts.windows:
                    terms += [(column, sign * size) for column, sign in self._change(counts, window)]
        return terms

    @staticmethod
    def _change(counts: Counts, window: int) -> _Terms:
        """The parts that one of the counts' own windows adds."""
        at = window - counts.windows.start
        return [(counts.columns[at], 1.0)] + ([(counts.columns[at - 1], -1.0)] if at else [])

    @staticmethod
    def _moved(counts: Counts, values: np.ndarray, unit: float, rounded: float) -> list[tuple[int, int]]:
        """(window, bytes or parts that are moved by its end), for each window of the counts. ``unit``: bytes of a count, or 1 for parts."""
        return [
            (window, math.floor(float(values[column]) * unit + rounded))
            for window, column in zip(counts.windows, counts.columns, strict=True)
        ]

    def _asked(self, costs: dict[int, float], rate_is_known: bool = True) -> LinearProgram:
        """A copy of the program with these costs."""
        program = deepcopy(self.program)
        program.costs = [costs.get(column, 0.0) for column in range(len(program.costs))]
        if rate_is_known and not self.fine:
            # Follows from (9) and from whole parts. Without it the program without integers promises much more than there is.
            for nbytes, *kinds in zip(self._bytes, self.written, self.direct, strict=True):
                for counts in kinds:
                    for window in counts.windows:
                        if nbytes > self.question.window(window).capacity + self.question.carry:
                            program.row(0.0, 0.0, [(column, sign) for column, sign in self._change(counts, window)])
        return program


def in_any_parts(question: Question, parts: Sequence[int]) -> CompactProgram:
    """The program without integers, for a question with a few bytes less room than there is: so that the plan of a solution keeps the
    bounds of ``question`` although its parts have whole bytes."""
    few = ROUNDED * len(question.tensors)
    windows = tuple(replace(window, capacity=max(0, window.capacity - few)) for window in question.windows)
    memory = None if question.memory is None else max(0, question.memory - few)
    return CompactProgram(replace(question, windows=windows, memory=memory), parts, fine=True)
