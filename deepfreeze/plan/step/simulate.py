"""Plays a plan of a step, period after period: memory over time, waiting, and the use of the store.

Training runs through the windows. The copies of a window are made when it begins, as soon as the memory that the plan counts on has room
for them. The store takes one part after the other, in the order of the plan: none before its copy is made, nor before its window begins. A
part whose bytes the window before has left over (``Question.carry``) begins in that window. A tensor's next update waits until all of it is
written that the plan writes without a copy.

A plan that is played on the windows that it was made for never waits. A slower store, or slower copies, follow from the same rules.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from deepfreeze.plan.step import usage
from deepfreeze.plan.step.parts import PlannedPart
from deepfreeze.plan.step.question import Question

_PERIODS = 8
_INSTANT = 1e-9  # seconds: moments that are nearer to each other are one


@dataclass(frozen=True)
class Played:
    """The last period of a played plan.

    - ``begin``, ``held``, ``waited``: of each window: seconds since the beginning of the period; the most bytes of copies in it; seconds
      that training waited in it.
    - ``seconds``: of the period. ``longer``: seconds by which copies make it longer, without the waiting.
    - ``used``: the part of the period in which the store was busy."""

    begin: tuple[float, ...]
    held: tuple[int, ...]
    waited: tuple[float, ...]
    seconds: float
    longer: float
    used: float

    @property
    def extra(self) -> int:
        """The most bytes of copies."""
        return max(self.held)

    @property
    def stall(self) -> float:
        """Seconds that training waits in the period."""
        return sum(self.waited)


def played(
    question: Question,
    parts: Sequence[PlannedPart],
    *,
    slower: float = 1.0,
    copy_rate: float = float("inf"),
    direct_rate: float = float("inf"),
    periods: int = _PERIODS,
) -> Played:
    """The last one of so many periods. ``slower``: the store takes so many times as long as the question says.

    ``copy_rate``: bytes that are copied in a second; ``direct_rate``: bytes that are handed over in a second to be written without a copy.
    Either makes its window longer by its own time, as far as the cores are busy."""
    play = _Play(question, parts, slower, copy_rate, direct_rate)
    horizon = question.horizon
    for number in range(min(play.numbers, default=0), (periods - 1) * horizon):
        play.window(number)
    begun, used = play.now, play.used
    windows = [play.window((periods - 1) * horizon + number) for number in range(horizon)]
    seconds = play.now - begun
    return Played(
        begin=tuple(one.begin - begun for one in windows),
        held=tuple(one.held for one in windows),
        waited=tuple(one.waited for one in windows),
        seconds=seconds,
        longer=sum(one.longer for one in windows),
        used=(play.used - used) / seconds if seconds else 0.0,
    )


@dataclass
class _Copy:
    """A copy that is held; ``made``: when; ``written``: when it is written, None while that is not known."""

    nbytes: int
    made: float
    written: float | None = None


@dataclass(frozen=True)
class _Passed:
    """A window that training has gone through."""

    begin: float
    held: int
    waited: float
    longer: float


class _Play:
    """The state of the simulation. ``now``: where training is; ``used``: how long the store has been busy, both in seconds. ``numbers``:
    the windows of a period in which anything is done."""

    def __init__(
        self, question: Question, parts: Sequence[PlannedPart], slower: float, copy_rate: float, direct_rate: float
    ) -> None:
        self.now, self.used = 0.0, 0.0
        self._question, self._slower = question, slower
        self._copy_rate, self._direct_rate = copy_rate, direct_rate
        self._room = int(usage.held(question, parts).max())
        self._free = 0.0  # when the store is free
        self._before = 0.0  # when the window before this one began
        self._held: dict[tuple[int, PlannedPart], _Copy] = {}
        self._directs: dict[tuple[int, int], float] = {}  # (period, tensor) -> when all of it is written
        # By the number of the window, counted from the beginning of the part's own period.
        self._copies: dict[int, list[PlannedPart]] = defaultdict(list)
        self._writes: dict[int, list[PlannedPart]] = defaultdict(list)
        self._updates: dict[int, list[int]] = defaultdict(list)
        for part in parts:
            self._writes[part.write].append(part)
            if part.copy is not None:
                self._copies[part.copy].append(part)
        for index, tensor in enumerate(question.tensors):
            self._updates[tensor.update].append(index)
        self.numbers = sorted({*self._copies, *self._writes})

    def window(self, number: int) -> _Passed:
        """Goes through the window with this number of all periods, the first one of which is period 0."""
        window, begin, waited = self._question.window(number), self.now, 0.0
        for period, updated in self._of(self._updates, number):
            for index in updated:
                waited += self._wait_until(self._directs.pop((period, index), 0.0))
        longer = 0.0
        for period, copied in self._of(self._copies, number):
            for part in copied:
                waited += self._wait_for_room(part.nbytes)
                longer += part.nbytes / self._copy_rate * window.busy
                self._held[period, part] = _Copy(part.nbytes, self.now)
        held = self._holds()
        for period, written in self._of(self._writes, number):
            for part in written:
                if part.copy is None:
                    longer += part.nbytes / self._direct_rate * window.busy
                self._write(period, part, number)
        self._before = begin
        self.now += window.seconds + longer
        self._held = {one: copy for one, copy in self._held.items() if self._is_held(copy)}
        return _Passed(begin, held, waited, longer)

    def _of(self, moves: dict[int, list], number: int) -> list[tuple[int, list]]:
        """(period, the moves) of all periods that have any in this window, the oldest period first."""
        horizon = self._question.horizon
        found = [((number - own) // horizon, moves[own]) for own in moves if (number - own) % horizon == 0]
        return sorted((period, those) for period, those in found if period >= 0)

    def _write(self, period: int, part: PlannedPart, number: int) -> None:
        """Writes a part of the window under way. It may begin in the window before. It is written at the rates of the windows that it
        meets, as long as they are without delays."""
        copy = None if part.copy is None else self._held[period, part]
        begin = max(self._free, self._before if self._question.carry else self.now, 0.0 if copy is None else copy.made)
        self._free = self._end(part.nbytes, begin, number)
        self.used += self._free - begin
        if copy is None:
            whole = (period, part.tensor)
            self._directs[whole] = max(self._free, self._directs.get(whole, 0.0))
        else:
            copy.written = self._free

    def _end(self, nbytes: float, begin: float, number: int) -> float:
        """The moment at which so many bytes are written, if the store begins at ``begin``. ``number``: of the window under way."""
        if not any(self._rate(window) for window in range(len(self._question.windows))):
            return float("inf")
        at, left, window, end = begin, nbytes, number - 1, self.now
        while True:
            rate = self._rate(window)
            taken = max(0.0, end - at) * rate
            if rate and taken >= left:
                return at + left / rate
            at, left, window = max(at, end), left - taken, window + 1
            end += self._question.window(window).seconds

    def _rate(self, number: int) -> float:
        """Bytes that the store takes in a second of a window."""
        window = self._question.window(number)
        return window.capacity / window.seconds / self._slower if window.seconds else 0.0

    def _wait_until(self, moment: float) -> float:
        """Training goes on at the moment, if that is later than now. Seconds that it waited."""
        waited = max(0.0, moment - self.now)
        self.now += waited
        return waited

    def _wait_for_room(self, nbytes: int) -> float:
        """Waits until so many bytes fit into the memory. Seconds that it took."""
        waited = 0.0
        for end in sorted(copy.written for copy in self._held.values() if copy.written is not None):
            if self._holds() + nbytes <= self._room:
                break
            waited += self._wait_until(end)
        return waited

    def _holds(self) -> int:
        return sum(copy.nbytes for copy in self._held.values() if self._is_held(copy))

    def _is_held(self, copy: _Copy) -> bool:
        return copy.written is None or copy.written > self.now + _INSTANT
