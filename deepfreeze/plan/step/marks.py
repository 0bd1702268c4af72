"""Marks of a step, and the windows between them. A mark is put where something of the step is known to be done, or to begin. It notes when
that is. ``windows`` and ``tensors`` make of such notes, over some steps, what a profile is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from deepfreeze.plan.step.profile import ProfiledWindow
from deepfreeze.plan.step.question import SavedTensor

MOST = 64  # marks of a step, and so windows
# Marks that are nearer than this part of a step begin one window. Often many updates run side by side.
_TOGETHER = 1 / 256
# A window that is shorter than this part of a step may change as it likes.
_SHORTEST = 0.001
_SHORT_STEPS = 0.2  # of all steps
_SHORTEST_TRANSFER = 1e-3  # seconds of all steps together, for a rate of a window's own


@dataclass(frozen=True)
class MarkPlace:
    """The place of a mark in the step. ``phase``: of the window that begins with it; ``first_writes``: the numbers of the tensors that are
    written to for the first time in a step behind it; ``last_writes``: of those that have, by then, the value with which the step ends."""

    name: str
    phase: str
    first_writes: tuple[int, ...] = ()
    last_writes: tuple[int, ...] = ()

    def also(self, other: MarkPlace) -> MarkPlace:
        """This place, with what happens behind another one too."""
        first, final = self.first_writes + other.first_writes, self.last_writes + other.last_writes
        return MarkPlace(self.name, self.phase, first, final)


@dataclass(frozen=True)
class MarkNotes:
    """The notes of the marks in some steps: arrays of shape (steps, marks). ``at``: when, in seconds, 0 where a mark has not run;
    ``cpu``: seconds of CPU time that the process had taken; ``written``: bytes that the engine had written; ``writing``: seconds in which
    it had been writing. Mark 0 is at the beginning of the step, the last one at its end."""

    at: np.ndarray
    cpu: np.ndarray
    written: np.ndarray
    writing: np.ndarray

    def of(self, marks: Sequence[int]) -> MarkNotes:
        """The notes of these marks, in their order."""
        kept = list(marks)
        return MarkNotes(self.at[:, kept], self.cpu[:, kept], self.written[:, kept], self.writing[:, kept])


def absent(notes: MarkNotes) -> list[int]:
    """The marks that did not run in each of the steps: what they mark is not done in every step."""
    return np.flatnonzero((notes.at == 0).any(axis=0)).tolist()


def arranged(places: Sequence[MarkPlace], notes: MarkNotes) -> list[tuple[int, MarkPlace]]:
    """The marks that windows begin with, in the order of their median times, with what happens behind each. The first mark stays the first
    one, the last mark the last one. A mark that is noted almost together with the one before it begins no window: what happens behind it
    happens in that window."""
    since = np.median(notes.at - notes.at[:, :1], axis=0)
    step = float(np.median(np.diff(notes.at[:, 0])))
    since[0], since[-1] = -np.inf, np.inf
    made: list[tuple[int, MarkPlace]] = []
    begun = 0.0
    for mark in np.argsort(since, kind="stable").tolist():
        begins = not made or mark == len(places) - 1 or since[mark] >= begun + _TOGETHER * step
        if begins:
            made.append((mark, places[mark]))
            begun = max(0.0, float(since[mark]))
        else:
            made[-1] = (made[-1][0], made[-1][1].also(places[mark]))
    return made


def windows(places: Sequence[MarkPlace], notes: MarkNotes, cores: float, copy_rate: float) -> list[ProfiledWindow]:
    """The windows of a step, each of which begins with a mark; the last one ends with the next step's first mark. ``places``, ``notes``: of
    these marks, in the order of the windows; notes of at least two steps in succession. ``cores``: that training has; ``copy_rate``: bytes
    that are copied in a second."""
    # In a single step, and on another rank, marks that are near to each other may come in another order.
    noted = (notes.at, notes.cpu, notes.written, notes.writing)
    at, cpu, written, writing = (np.maximum.accumulate(values, axis=1) for values in noted)
    begin = np.maximum.accumulate(np.median(at - at[:, :1], axis=0))
    step = float(np.median(np.diff(at[:, 0])))
    seconds = np.diff([*begin, max(step, begin[-1])])
    each, used = _differences(at), _differences(cpu)
    low, high = np.percentile(each, [10, 90], axis=0)
    shortest = _in_short_steps(each)
    rates = _rates(written, writing)
    made, since = [], 0.0
    for number, place in enumerate(places):
        long = max(0.0, float(seconds[number]))
        made.append(
            ProfiledWindow(
                name=place.name,
                phase=place.phase,
                begin=since,
                seconds=long,
                shortest=min(long, max(0.0, float(shortest[number]))),
                spread=max(0.0, float(high[number] - low[number])) / max(long, _SHORTEST * step),
                busy=_share(float(used[:, number].sum()), cores * float(each[:, number].sum())),
                base=0,
                rate=float(rates[number]),
                copy_rate=copy_rate,
            )
        )
        since += long
    return made


def step_spread(notes: MarkNotes) -> float:
    """The 90th percentile of the seconds of a step minus the 10th, over the median."""
    shortest, middle, longest = np.percentile(np.diff(notes.at[:, 0]), [10, 50, 90])
    return float((longest - shortest) / middle) if middle > 0 else 0.0


def tensors(places: Sequence[MarkPlace], saved: Sequence[tuple[str, int, bool]]) -> list[SavedTensor]:
    """The tensors that are saved, with the windows in which they are written to. ``places``: of the marks, in the order of the windows;
    ``saved``: name, bytes, and True for what is taken at the end of a step, because the next one may change it at once. A tensor that no
    step writes to counts as written to when the step has ended."""
    last = len(places) - 1
    first_writes: dict[int, int] = {}  # tensor -> window
    last_writes: dict[int, int] = {}
    for window, place in enumerate(places):
        first_writes |= dict.fromkeys(place.first_writes, window)
        last_writes |= dict.fromkeys(place.last_writes, window)
    made = []
    for number, (name, nbytes, at_end) in enumerate(saved):
        update = 0 if at_end else first_writes.get(number, last)
        ready = last if at_end else last_writes.get(number, update)
        made.append(SavedTensor(name, nbytes, update, ready if ready > update else None))
    return made


def slowest(ranks: Sequence[Sequence[ProfiledWindow]]) -> list[ProfiledWindow]:
    """The windows of all ranks: of each window the longest time, the busiest cores and the lowest rates of any rank that has one: a
    rank may have nothing to copy. ``ranks``: of each rank the windows of the same marks, in the same order."""
    made: list[ProfiledWindow] = []
    since = 0.0
    for those in zip(*ranks, strict=True):
        longest = max(those, key=lambda one: one.seconds)
        made.append(
            ProfiledWindow(
                name=longest.name,
                phase=longest.phase,
                begin=since,
                seconds=longest.seconds,
                shortest=min(longest.seconds, max(one.shortest for one in those)),
                spread=max(one.spread for one in those),
                busy=max(one.busy for one in those),
                base=max(one.base for one in those),
                rate=_lowest(one.rate for one in those),
                copy_rate=_lowest(one.copy_rate for one in those),
            )
        )
        since += longest.seconds
    return made


def grouped(sizes: Sequence[int], most: int) -> list[range]:
    """Neighbours in at most so many groups of about as many bytes each. ``sizes``: bytes of each."""
    made: list[range] = []
    whole, begin, below = sum(sizes), 0, 0
    groups = min(most, len(sizes))
    for number, size in enumerate(sizes):
        below += size
        # At least one for each group that is still to come.
        left = groups - len(made) - 1
        is_full = below * groups >= whole * (len(made) + 1)
        if left and (is_full or len(sizes) - number - 1 == left):
            made.append(range(begin, number + 1))
            begin = number + 1
    return [*made, range(begin, len(sizes))] if begin < len(sizes) else made


def _differences(values: np.ndarray) -> np.ndarray:
    """(steps - 1, windows): by how much the value grows in each window."""
    return np.diff(np.concatenate([values[:-1], values[1:, :1]], axis=1), axis=1)


def _in_short_steps(seconds: np.ndarray) -> np.ndarray:
    """The median of each window in the shortest fifth of the steps, of shape (windows,). Their sum is about the 10th percentile of a whole
    step. The sum of each window's own 10th percentile would be much less, because no step is short in all of its windows. ``seconds``: of
    shape (steps, windows)."""
    order = np.argsort(seconds.sum(axis=1), kind="stable")
    return np.asarray(np.median(seconds[order[: max(1, round(_SHORT_STEPS * len(order)))]], axis=0))


def _share(part: float, whole: float) -> float:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else 1.0


def _lowest(rates: Iterable[float]) -> float:
    """The lowest rate above 0; 0 if there is none."""
    return min((rate for rate in rates if rate > 0), default=0.0)


def _rates(written: np.ndarray, writing: np.ndarray) -> np.ndarray:
    """Bytes that the engine writes in a second while it is writing, in each window: of shape (windows,). A window in which it has not
    written has the rate of all windows together; that is 0 if nothing was written at all. ``written``: the engine's count of bytes at each
    mark; ``writing``: its seconds of writing up to there; both of shape (steps, marks).

    The engine counts a block when it is written. So each increase is spread over the time of writing since the increase before it."""
    order = np.argsort(writing, axis=None, kind="stable")
    busy, nbytes = writing.ravel()[order], np.maximum.accumulate(written.ravel()[order])
    known = np.flatnonzero(np.diff(nbytes, prepend=-1.0) > 0)
    moved = np.interp(writing, busy[known], nbytes[known])
    of_windows = _differences(moved).sum(axis=0)
    under_way = _differences(writing).sum(axis=0)
    whole = float(under_way.sum())
    rate = float(of_windows.sum()) / whole if whole > 0 else 0.0
    met = under_way > _SHORTEST_TRANSFER
    return np.where(met, of_windows / np.where(met, under_way, 1.0), rate)
