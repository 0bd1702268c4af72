"""Plans of a step that need no solver. Each is made by playing the store window by window.

- ``at_once``: a part is copied as late as its write allows: in the window before it is written, or before its tensor's next update if it is
  not written by then. The store takes the parts first whose tensor is updated first, of these the largest, and always as many as it can.
  In a long window those may be many, which all have copies at once.
- ``greedy``: the same with a bound of memory. The store takes a part later if a copy for it would exceed the bound. A plan may exceed its
  bound all the same, where a copy must be made. Several bounds are tried, and the plan with the smallest peak is taken.
- ``at_update``: each tensor is copied as soon as the captured step has updated it, as captures are today; the store takes the oldest copies
  first.

All begin in an empty cycle, and go on until two periods are alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from deepfreeze.plan.step.checker import violations
from deepfreeze.plan.step.parts import PlannedPart, pieces
from deepfreeze.plan.step.question import Question
from deepfreeze.plan.step.usage import peak

_TRIALS = 8  # of the bisection for the smallest bound that is kept
_STEPS = 8  # bounds that are tried below the plan that the bisection found
_PERIODS = 40  # after as many periods a cycle that has not come to rest is given up


@dataclass
class _Waiting:
    """A part that is not written yet. ``period``: which checkpoint it is of; ``key``: which is written first. Windows are counted on
    through all periods: ``due``: the one in which its copy must be made, or, for ``at_update``, is made; ``writes``: those in which a copy
    of it may be written; ``directs``: those in which it may be written without a copy. ``copy``: the window in which it was copied."""

    part: PlannedPart
    period: int
    key: tuple[int, ...]
    due: int
    writes: range
    directs: range
    copy: int | None = None
    is_written: bool = False

    def may_be_written(self, window: int) -> bool:
        """True if it may be written in the window, if there is room."""
        return window in self.writes or (self.copy is None and window in self.directs)


def at_once(question: Question, parts: Sequence[int]) -> list[PlannedPart] | None:
    """The plan that writes all it can, with each tensor cut into so many parts. None if this way finds no room for all writes, or needs
    more memory than there is."""
    return _played(question, parts, late=True)


def greedy(question: Question, parts: Sequence[int], least: float = 0.0) -> list[PlannedPart] | None:
    """The plan with the smallest peak that this way finds, with each tensor cut into so many parts; None if it finds none. ``least``: bytes
    of copies and base with which no plan can do."""
    best = at_once(question, parts)
    held = float(question.base + 2 * question.nbytes) if best is None else float(peak(question, best))

    def tried(bound: float) -> bool:
        """True if there is a plan that keeps the bound."""
        nonlocal best, held
        made = _played(question, parts, late=True, most=int(bound))
        found = float("inf") if made is None else float(peak(question, made))
        if found < held:
            best, held = made, found
        return found <= bound

    low, high = max(least, float(question.base)), held
    for _ in range(_TRIALS):
        bound = (low + high) / 2
        if tried(bound):
            high = min(bound, held)
        else:
            low = bound
    # The bisection has given these bounds up, because no plan keeps them. The plan for one of them may be the better one all the same.
    low = max(least, float(question.base))
    for bound in [low + (held - low) * step / _STEPS for step in range(_STEPS)]:
        tried(bound)
    return best


def at_update(question: Question, parts: Sequence[int]) -> list[PlannedPart] | None:
    """The plan that copies each tensor at its update, of a question that is cyclic. None if the store does not take all writes of a period
    within it, or memory is too small."""
    return _played(replace(question, cyclic=True, direct=False), parts, late=False)


def _played(question: Question, parts: Sequence[int], late: bool, most: int | None = None) -> list[PlannedPart] | None:
    """The moves of the first period that is like the one before it; without a cycle, of the only one. ``most``: bytes of copies and base
    above which no copy is made before it must be."""
    before: list[PlannedPart] | None = None
    waiting: list[_Waiting] = []
    done: dict[int, list[PlannedPart]] = {}
    left = 0  # bytes that the window before has left over
    held = 0  # bytes of copies in the window before
    first = min((question.copies(tensor).start for tensor in question.tensors), default=0)
    for period in range(_PERIODS if question.cyclic else 1):
        offset = period * question.horizon
        waiting = sorted([*waiting, *_parts(question, parts, period, late)], key=lambda one: one.key)
        # A period's own windows begin with the first one in which any tensor can be copied.
        for window in range(offset + first, offset + first + question.horizon):
            copied = sum(one.part.nbytes for one in waiting if one.copy is not None)
            due = sum(one.part.nbytes for one in waiting if one.copy is None and one.due == window)
            room = _Room(left + question.window(window).capacity)
            if most is not None:
                room.before = most - held - question.window(window - 1).base
                room.memory = most - copied - due - question.window(window).base
            for one in list(_written(waiting, window, room)):
                if one.copy == window - 1:
                    copied += one.part.nbytes
                one.is_written = True
                moved = replace(one.part, copy=one.copy, write=window)
                done.setdefault(one.period, []).append(_shifted(moved, -one.period * question.horizon))
            waiting = [one for one in waiting if not one.is_written]
            left = min(question.carry, int(room.store))
            held = copied + sum(one.part.nbytes for one in waiting if one.copy == window)
        whole = sum(parts)
        newest = max((number for number, moves in done.items() if len(moves) == whole), default=None)
        if newest is None or (question.cyclic and newest == 0):
            continue
        made = sorted(done[newest], key=lambda part: (part.tensor, part.begin))
        if not question.cyclic or made == before:
            return None if violations(question, made) else made
        before = made
    return None


def _parts(question: Question, parts: Sequence[int], period: int, late: bool) -> Iterator[_Waiting]:
    """The parts of a period's checkpoint."""
    begun = period * question.horizon

    def on(windows: range) -> range:
        return range(begun + windows.start, begun + windows.stop)

    for index, (tensor, k) in enumerate(zip(question.tensors, parts, strict=True)):
        copies, writes, directs = (on(one(tensor)) for one in (question.copies, question.writes, question.directs))
        if not copies:  # an update in the very first window leaves no window to copy in
            writes = range(0)
        for begin, nbytes in pieces(tensor.nbytes, k):
            key = (begun + tensor.update, -nbytes, index, begin)
            due = copies.stop - 1 if late else copies.start
            yield _Waiting(PlannedPart(index, begin, nbytes, None, 0), period, key, due, writes, directs)


@dataclass
class _Room:
    """Bytes that a window has room for: those that the ``store`` takes; copies that are made in the window ``before`` it, and are in its
    own ``memory``, although they could be made later."""

    store: float
    before: float = float("inf")
    memory: float = float("inf")

    def take(self, nbytes: int, is_copied: bool, is_due: bool) -> bool:
        """Takes the room for a part if it is there. ``is_copied``: a copy of it is made for that, which ``is_due`` in this window else."""
        before, memory = nbytes * is_copied, nbytes * (is_copied and not is_due)
        if nbytes > self.store or (is_copied and (before > self.before or memory > max(0.0, self.memory))):
            return False
        self.store -= nbytes
        self.before -= before
        self.memory -= memory
        return True


def _written(waiting: Sequence[_Waiting], window: int, room: _Room) -> Iterator[_Waiting]:
    """The parts that are written in a window with so much room; and the copies that must be made in it are made."""
    for one in waiting:
        is_due = one.copy is None and one.due == window
        is_copied = one.copy is None and window not in one.directs
        if one.may_be_written(window) and room.take(one.part.nbytes, is_copied, is_due):
            if is_copied:
                one.copy = window - 1
            yield one
        elif is_due:
            one.copy = window


def _shifted(part: PlannedPart, windows: int) -> PlannedPart:
    return replace(part, copy=None if part.copy is None else part.copy + windows, write=part.write + windows)
