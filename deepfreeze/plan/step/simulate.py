"""Plays a plan of a step, period after period: memory over time, waiting, and the use of the store.

Training runs through the windows. Copies are made one after the other, beside training, from the beginning of their window on and each as
soon as the memory that the plan counts on has room for it. The store takes one part after the other, in the order of the plan: none before
its copy is made, nor before its window begins. A part whose bytes the window before has left over (``Question.carry``) begins in that
window. A tensor's next update waits until all of it is copied, or written where the plan writes it without a copy. The end of a step waits
for all copies under way.

A plan that is played on the windows that it was made for never waits. A slower store, or slower copies, follow from the same rules.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
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
    copy_rate: float = math.inf,
    cost: float = 0.0,
    periods: int = _PERIODS,
) -> Played:
    """The last one of so many periods. ``slower``: the store takes so many times as long as the question says; ``copy_rate``: bytes that
    are copied in a second.

    ``cost``: seconds of a core that each byte takes, beyond those that the windows have in them. They make the window in which it is
    copied, or written without a copy, longer as far as the cores are busy: work that is split over all cores waits for the slowest one."""
    play = _Play(question, parts, slower, copy_rate, cost)
    horizon, number = question.horizon, min(play.numbers, default=0)
    last = (periods - 1) * horizon
    for before in range(number, last):
        play.window(before)
    begun, used = play.now, play.used
    windows = [play.window(last + one) for one in range(horizon)]
    seconds, busy = play.now - begun, play.used - used
    # Until all copies of the last period are written.
    for behind in range(2 * horizon):
        play.window(last + horizon + behind)
    return Played(
        begin=tuple(one.begin - begun for one in windows),
        held=tuple(_most(play.copies, one.begin, one.end) for one in windows),
        waited=tuple(one.waited for one in windows),
        seconds=seconds,
        longer=sum(one.longer for one in windows),
        used=busy / seconds if seconds else 0.0,
    )


@dataclass
class _Copy:
    """A copy of a part. ``begun``: when training begins to copy; ``made``: when all bytes are copied; ``written``: when the store has taken
    them, infinite while that is not known. All are seconds since the simulation began."""

    nbytes: int
    begun: float
    made: float
    written: float = math.inf

    def is_held(self, moment: float) -> bool:
        """True if it is in memory."""
        return self.begun <= moment + _INSTANT and self.written > moment + _INSTANT


@dataclass(frozen=True)
class _Passed:
    """A window that training has gone through."""

    begin: float
    end: float
    waited: float
    longer: float


class _Play:
    """The state of the simulation. ``now``: where training is; ``used``: how long the store has been busy, both in seconds; ``copies``: all
    that were made. ``numbers``: the windows of a period in which anything is done."""

    def __init__(
        self,
        question: Question,
        parts: Sequence[PlannedPart],
        slower: float,
        copy_rate: float,
        cost: float,
    ) -> None:
        self.now, self.used = 0.0, 0.0
        self.copies: list[_Copy] = []
        self._question, self._slower = question, slower
        self._copy_rate, self._cost = copy_rate, cost
        self._room = int(usage.held(question, parts).max())
        self._free = 0.0  # when the store is free
        self._begin = self._before = 0.0  # when the window under way has begun, and the one before it
        self._held: list[_Copy] = []
        # (period, part) -> its copy, until the store takes it
        self._waiting: dict[tuple[int, PlannedPart], _Copy] = {}
        self._queue: deque[tuple[int, int, PlannedPart]] = deque()  # (window, period, part), in the store's order
        self._queued: int | None = None  # the last window whose parts are in the queue
        # (period, tensor) -> when all of it is copied, or written without a copy
        self._saved: dict[tuple[int, int], float] = {}
        self._copied = 0.0  # when the last copy so far is made
        # By the number of the window, counted from the beginning of the part's own period.
        self._to_copy: dict[int, list[PlannedPart]] = defaultdict(list)
        self._to_write: dict[int, list[PlannedPart]] = defaultdict(list)
        self._to_update: dict[int, list[int]] = defaultdict(list)
        for part in parts:
            self._to_write[part.write].append(part)
            if part.copy is not None:
                self._to_copy[part.copy].append(part)
        for index, tensor in enumerate(question.tensors):
            self._to_update[tensor.update].append(index)
        self.numbers = sorted({*self._to_copy, *self._to_write})

    def window(self, number: int) -> _Passed:
        """Goes through the window with this number of all periods, the first one of which is period 0."""
        window, waited, longer = self._question.window(number), 0.0, 0.0
        self._before, self._begin = self._begin, self.now
        for period, updated in self._of(self._to_update, number):
            for index in updated:
                waited += self._wait(self._saved.pop((period, index), 0.0) - self.now)
        longer += self._enqueue(number)
        self._take(number)
        for period, copied in self._of(self._to_copy, number):
            for part in copied:
                longer += part.nbytes * self._cost * window.busy
                self._copy(period, part, self._room_at(part.nbytes, max(self.now, self._copied)))
                self._take(number)
        self.now += window.seconds + longer
        if (number + 1) % len(self._question.windows) == 0:
            waited += self._wait(self._copied - self.now)
        self._held = [copy for copy in self._held if copy.written > self.now]
        return _Passed(self._begin, self.now, waited, longer)

    def _copy(self, period: int, part: PlannedPart, at: float) -> None:
        """Copies a part from the moment ``at`` on."""
        copy = _Copy(part.nbytes, at, at + part.nbytes / self._copy_rate)
        self.copies.append(copy)
        self._held.append(copy)
        self._waiting[period, part] = copy
        self._copied = copy.made
        self._save(period, part, copy.made)

    def _save(self, period: int, part: PlannedPart, moment: float) -> None:
        """Notes that the part's tensor may be updated from ``moment`` on, as far as this part is concerned."""
        whole = (period, part.tensor)
        self._saved[whole] = max(moment, self._saved.get(whole, 0.0))

    def _of(self, moves: dict[int, list], number: int) -> list[tuple[int, list]]:
        """(period, the moves) of all periods that have any in this window, the oldest period first."""
        horizon = self._question.horizon
        found = [((number - own) // horizon, moves[own]) for own in moves if (number - own) % horizon == 0]
        return sorted((period, those) for period, those in found if period >= 0)

    def _enqueue(self, number: int) -> float:
        """Puts the parts of a window into the store's queue, and those of the next window, whose writes may begin early. Returns the
        seconds by which parts that are written without a copy make the windows longer."""
        longer = 0.0
        begin = number if self._queued is None else self._queued + 1
        self._queued = number + (1 if self._question.carry else 0)
        for window in range(begin, self._queued + 1):
            for period, written in self._of(self._to_write, window):
                for part in written:
                    self._queue.append((window, period, part))
                    if part.copy is None:
                        longer += part.nbytes * self._cost * self._question.window(window).busy
        return longer

    def _take(self, number: int) -> None:
        """The store takes parts of the queue, up to the first one that can't be written yet. ``number``: of the window under way."""
        while self._queue:
            window, period, part = self._queue[0]
            copy = self._waiting.pop((period, part), None)
            if copy is None and (window > number or part.copy is not None):
                return
            self._queue.popleft()
            earliest = self.now
            if self._question.carry:
                earliest = self._begin if window > number else self._before
            begin = max(self._free, earliest, 0.0 if copy is None else copy.made)
            self._free = self._end(part.nbytes, begin, number)
            self.used += self._free - begin
            if copy is not None:
                copy.written = self._free
            else:
                self._save(period, part, self._free)

    def _end(self, nbytes: float, begin: float, number: int) -> float:
        """The moment at which so many bytes are written, if the store begins at ``begin``. They are written at the rates of the windows
        that they meet, as long as those are without delays. ``number``: of the window under way."""
        if not any(self._rate(window) for window in range(len(self._question.windows))):
            return math.inf
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

    def _wait(self, seconds: float) -> float:
        """Training waits for so many seconds, if there are any. Those that it waited."""
        waited = max(0.0, seconds)
        self.now += waited
        return waited

    def _room_at(self, nbytes: int, moment: float) -> float:
        """The first moment, from ``moment`` on, at which so many bytes fit into the memory. A copy whose write is not yet in
        sight is not waited for."""
        at = moment
        for end in sorted(copy.written for copy in self._held if copy.written != math.inf):
            if sum(copy.nbytes for copy in self._held if copy.is_held(at)) + nbytes <= self._room:
                break
            at = max(at, end)
        return at


def _most(copies: Iterable[_Copy], begin: float, end: float) -> int:
    """The most bytes of copies that are held at once in a window, which lasts from ``begin`` to ``end``."""
    changes: list[tuple[float, int]] = []
    for copy in copies:
        if copy.written > begin + _INSTANT and (copy.begun < end - _INSTANT or copy.is_held(begin)):
            changes += [(max(copy.begun, begin), copy.nbytes), (max(copy.written - _INSTANT, begin), -copy.nbytes)]
    held = most = 0
    for _, nbytes in sorted(changes):
        held += nbytes
        most = max(most, held)
    return most
