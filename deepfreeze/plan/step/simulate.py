"""Plays a plan of a step, period after period: memory over time, waiting, and the use of the store.

Training runs through the windows. Copies are made one after the other, beside training, from the beginning of their window on and each as
soon as the memory that the plan counts on has room for it. The store takes parts in the order of the plan, as many at once as it has
writers: none before its copy is made, nor before its window begins. A part whose bytes the window before has left over
(``Question.carry``) begins in that window. A tensor's next update waits until all of it is copied, or written where the plan writes it
without a copy. The end of a step waits for all copies under way.

A plan that is played on the windows that it was made for never waits. A slower store, or slower copies, follow from the same rules.
"""

from __future__ import annotations

import functools
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepfreeze.plan.step import usage
from deepfreeze.plan.step.parts import PlannedPart
from deepfreeze.plan.step.question import Question

_PERIODS = 8
_INSTANT = 1e-9  # seconds: moments that are nearer to each other are one


@dataclass(frozen=True)
class Pace:
    """The speed of copies and of the store, where it is another one than the question says.

    - ``slower``: the store takes so many times as long; ``beside``: the part of its rate that it has while training copies;
      ``writers``: how many parts it takes at once, each at an equal share of its rate.
    - ``copy_rate``: bytes that training copies in a second.
    - ``cost``: seconds of a core that each byte takes, beyond those that the windows have in them. They make the window in which it is
      copied, or written without a copy, longer as far as the cores are busy: work that is split over all cores waits for the slowest one.
    """

    slower: float = 1.0
    beside: float = 1.0
    writers: int = 1
    copy_rate: float = math.inf
    cost: float = 0.0


_AS_ASKED = Pace()


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
    pace: Pace = _AS_ASKED,
    *,
    room: int | None = None,
    periods: int = _PERIODS,
) -> Played:
    """The last one of so many periods. ``room``: bytes of memory for copies, None for those that the plan counts on."""
    play = _Play(question, parts, pace, room)
    last = (periods - 1) * question.horizon
    for before in range(play.first, last):
        play.window(before)
    begun, used = play.now, play.used
    windows = [play.window(last + one) for one in range(question.horizon)]
    seconds = play.now - begun
    return Played(
        begin=tuple(one.begin - begun for one in windows),
        held=tuple(one.held for one in windows),
        waited=tuple(one.waited for one in windows),
        seconds=seconds,
        longer=sum(one.longer for one in windows),
        used=(play.used - used) / seconds if seconds else 0.0,
    )


def held_by_step(
    question: Question,
    parts: Sequence[PlannedPart],
    steps: Sequence[Sequence[float]],
    pace: Pace = _AS_ASKED,
    *,
    room: int | None = None,
) -> list[int]:
    """The most bytes of copies in each of ``steps``, which are given by the seconds of their windows. Where windows change from step to
    step, copies that the plan makes far from each other may have to be held together. The steps before the first one are as the question
    has them. ``room``: as for ``played``."""
    play, count = _Play(question, parts, pace, room), len(question.windows)
    begun = _PERIODS * question.horizon
    for before in range(play.first, begun):
        play.window(before)
    found = []
    for step, seconds in enumerate(steps):
        first = begun + step * count
        found.append(max(play.window(first + one, seconds[one]).held for one in range(count)))
    return found


@dataclass(eq=False)
class _Move:
    """A part of a period on its way. ``left``: bytes that are still to be copied, or to be written."""

    period: int
    part: PlannedPart
    left: float
    is_copied: bool = False


@dataclass(frozen=True)
class _Passed:
    """A window that training has gone through."""

    begin: float
    waited: float
    longer: float
    held: int


class _Play:
    """The state of the simulation. ``now``: where training is; ``used``: how long the store has been busy, both in seconds; ``first``: the
    first window of a period in which anything is done."""

    def __init__(self, question: Question, parts: Sequence[PlannedPart], pace: Pace, room: int | None) -> None:
        self.now, self.used = 0.0, 0.0
        self._question, self._pace = question, pace
        self._room = int(usage.held(question, parts).max()) if room is None else room
        self._held = self._most = 0  # bytes of copies now, and the most since the window began
        self._copies: deque[_Move] = deque()  # to be made; the first one is under way if there is room for it
        self._is_copying = False
        self._queue: deque[_Move] = deque()  # in the store's order
        self._writing: list[_Move] = []
        self._queued: int | None = None  # the last window whose parts are in the queue
        self._moves: dict[tuple[int, PlannedPart], _Move] = {}  # (period, part) -> that part, until the store takes it
        # (period, tensor) -> its parts that are copied, or written without a copy
        self._saved: Counter[tuple[int, int]] = Counter()
        self._parts = Counter(part.tensor for part in parts)
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
        self.first = min([0, *self._to_copy, *self._to_write])
        windows = question.windows
        whole = sum(window.seconds for window in windows)
        self._mean = sum(window.capacity for window in windows) / whole if whole else 0.0

    def window(self, number: int, seconds: float | None = None) -> _Passed:
        """Goes through the window with this number of all periods, the first one of which is period 0. ``seconds``: how long it takes,
        None if that is as the question says."""
        window, waited, longer = self._question.window(number), 0.0, 0.0
        begin, self._most = self.now, self._held
        for period, updated in self._of(self._to_update, number):
            for index in updated:
                waited += self._wait(functools.partial(self._is_saved, period, index))
                del self._saved[period, index]
        longer += self._enqueue(number)
        for period, copied in self._of(self._to_copy, number):
            for part in copied:
                longer += part.nbytes * self._pace.cost * window.busy
                self._copies.append(self._move(period, part))
        rate = window.capacity / window.seconds if window.seconds else self._mean
        self._run(rate, self.now + (window.seconds if seconds is None else seconds) + longer)
        if (number + 1) % len(self._question.windows) == 0:
            waited += self._wait(lambda: not self._copies)
        return _Passed(begin, waited, longer, self._most)

    def _is_saved(self, period: int, tensor: int) -> bool:
        """True if all of a tensor is copied, or written without a copy, so that it may be updated."""
        return self._saved[period, tensor] >= self._parts[tensor]

    def _move(self, period: int, part: PlannedPart) -> _Move:
        """The part of a period, which is known by its copy or by its write, whichever comes first."""
        return self._moves.setdefault((period, part), _Move(period, part, part.nbytes))

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
                    self._queue.append(self._move(period, part))
                    if part.copy is None:
                        longer += part.nbytes * self._pace.cost * self._question.window(window).busy
        return longer

    def _wait(self, is_over: Callable[[], bool]) -> float:
        """Training waits until it is over. The store has its mean rate meanwhile. Returns the seconds."""
        begun = self.now
        self._run(self._mean, math.inf, is_over)
        return self.now - begun

    def _run(self, rate: float, until: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Lets copies and the store go on, up to a moment, or until it is over. ``rate``: bytes that the store takes in a second."""
        while True:
            self._begin()
            if is_over():
                return
            each = rate / self._pace.slower / max(1, len(self._writing))
            if self._is_copying:
                each *= self._pace.beside
            copied = self._copies[0].left / self._pace.copy_rate if self._is_copying else math.inf
            written = min((one.left for one in self._writing), default=math.inf) / each if each else math.inf
            seconds = max(0.0, min(copied, written, until - self.now))
            assert seconds < math.inf, "training waits for a store that takes nothing"
            self.now += seconds
            self.used += seconds if self._writing else 0.0
            for one in self._writing:
                one.left -= seconds * each
            if self._is_copying and self._pace.copy_rate != math.inf:
                self._copies[0].left -= seconds * self._pace.copy_rate
            self._end(copied <= seconds + _INSTANT, each * _INSTANT)
            if self.now >= until:
                return

    def _begin(self) -> None:
        """Begins the copy, and the writes, that can begin now."""
        if self._copies and not self._is_copying:
            nbytes = self._copies[0].part.nbytes
            # No copy waits for a write that is not under way.
            if self._held + nbytes <= self._room or all(one.part.copy is None for one in self._writing):
                self._is_copying = True
                self._held += nbytes
                self._most = max(self._most, self._held)
        while self._queue and len(self._writing) < self._pace.writers:
            move = self._queue[0]
            if move.part.copy is not None and not move.is_copied:
                return
            self._writing.append(self._queue.popleft())
            del self._moves[move.period, move.part]

    def _end(self, is_copied: bool, least: float) -> None:
        """Ends the copy under way if it ``is_copied``, and the writes of which at most ``least`` bytes are left."""
        if is_copied:
            move = self._copies.popleft()
            self._is_copying = False
            move.is_copied, move.left = True, move.part.nbytes
            self._saved[move.period, move.part.tensor] += 1
        written = [one for one in self._writing if one.left <= least]
        for one in written:
            self._writing.remove(one)
            if one.part.copy is None:
                self._saved[one.period, one.part.tensor] += 1
            else:
                self._held -= one.part.nbytes
