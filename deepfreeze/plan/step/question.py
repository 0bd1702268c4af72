"""The question that a plan of a step answers: in which windows of the step is each saved tensor copied, and in which is it written?

Checkflow (2025) asks it of the operators of one step. Here a step has windows, which are intervals between marks in it.

Windows are numbered in the order of time, through all steps of a period of ``every`` steps. Each step has W windows. Window 0 is the first
one of the step after the captured step; window -1 is the last one of the captured step itself.

A step updates each tensor in one of its windows, u. In the captured step that is window u - W: from then on the tensor has the value that
is to be saved. The next step updates it in window u: from then on the value is gone. So the tensor is copied between these two windows, in
one window or in several. The copy is written later. Or the tensor is written directly, without a copy, before window u.

Two forms of the question:

- "cyclic": a period is followed by another one. What is copied late in one of them may be written early in the next, and the memory that
  both need is counted together.
- otherwise, as the paper has it: nothing is held when window 0 begins, and all is written when the period ends.

In the paper a window writes whole parts alone, so the store idles for the rest of it. A real store goes on with the next part, which may
end in the window behind. ``carry`` is the number of bytes that a window can so leave to the next one: those of the largest part, or 0 as in
the paper.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

MOST_COUNTS = 1_000_000  # of a question, so that it has room in memory
PHASES = ("forward", "backward", "update", "between")


@dataclass(frozen=True)
class StepWindow:
    """A window of a step. ``seconds``: how long it takes (the paper's tau). ``capacity``: bytes that can be written in it, at the rate that
    the store takes while training runs (B tau). ``busy``: the share of the cores that training uses, from 0 to 1. ``base``: bytes that are
    in memory beside copies (the sum of l eta). ``copy_capacity``: bytes that one core can copy in it; None if copies take no time, as
    in the paper."""

    seconds: float
    capacity: int
    busy: float = 1.0
    base: int = 0
    name: str = ""
    phase: str = "forward"
    copy_capacity: int | None = None


@dataclass(frozen=True)
class SavedTensor:
    """A tensor of a checkpoint, or neighbours that are updated in one window and treated as one. ``update``: the window of a step that
    writes to it. ``ready``: the window of the captured step at whose beginning it has the value that is saved, if that is known: a mark
    says when an update has ended, and metrics are taken at the end of a step. None if the update ends in its own window. Without a
    cycle, a tensor with ``ready`` may always be copied in window 0."""

    name: str
    nbytes: int
    update: int
    ready: int | None = None


@dataclass(frozen=True)
class Question:
    """``windows`` of one step, in order; ``tensors`` that are saved; ``every``: steps from one checkpoint to the next; ``memory``: the most
    bytes that copies and base may hold together, None for as few as possible; ``cyclic``, ``carry``: see above; ``direct``: tensors may be
    written without a copy; ``blocks``: bytes of the engine's writers, which were taken off ``memory`` and which messages add again."""

    windows: tuple[StepWindow, ...]
    tensors: tuple[SavedTensor, ...]
    every: int = 1
    memory: int | None = None
    cyclic: bool = True
    direct: bool = False
    carry: int = 0
    blocks: int = 0

    @property
    def horizon(self) -> int:
        """The number of windows of a period."""
        return self.every * len(self.windows)

    @property
    def counts(self) -> int:
        """About how many numbers a plan is sought by: for each tensor one for each window of the period."""
        return (self.every + 1) * len(self.windows) * len(self.tensors)

    @property
    def nbytes(self) -> int:
        """Bytes of a checkpoint (the paper's m)."""
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def base(self) -> int:
        """The most bytes that are in memory without any copy."""
        return max(window.base for window in self.windows)

    def faster(self, times: float) -> Question:
        """The question with a store that is so many times as fast."""
        windows = [replace(window, capacity=int(window.capacity * times)) for window in self.windows]
        return replace(self, windows=tuple(windows))

    def window(self, number: int) -> StepWindow:
        """The window with a number of any period."""
        return self.windows[number % len(self.windows)]

    def copies(self, tensor: SavedTensor) -> range:
        """The windows in which the tensor may be copied."""
        if not self.cyclic:
            return range(tensor.update if tensor.ready is None else max(1, tensor.update))
        return range((tensor.update if tensor.ready is None else tensor.ready) - len(self.windows), tensor.update)

    def writes(self, tensor: SavedTensor) -> range:
        """The windows in which copies of the tensor may be written: behind the first window of ``copies``; up to the end of the period, or,
        in a cycle, until the latest copy of the next period begins to be made."""
        return range(self.copies(tensor).start + 1, self.horizon + (tensor.update if self.cyclic else 0))

    def directs(self, tensor: SavedTensor) -> range:
        """The windows in which the tensor may be written without a copy: those of ``copies``, but not the one whose update gives it its
        value. Where ``ready`` says that the value is there from the beginning of a window on, that window counts."""
        own = self.copies(tensor)
        is_changing = self.cyclic and tensor.ready is None
        return range(own.start + is_changing, own.stop) if self.direct else range(0)
