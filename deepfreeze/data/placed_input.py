"""An input that knows its place: how much of which epoch is trained."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from deepfreeze import arguments
from deepfreeze.data.dealing import Dealing
from deepfreeze.data.keras_calls import FIT
from deepfreeze.data.keras_input import KerasInput
from deepfreeze.data.passes import Pass
from deepfreeze.data.standing import Place, Standing
from deepfreeze.errors import CorruptError
from deepfreeze.events.messages import to_logger
from deepfreeze.format.strict_json import MAX_INT, short
from deepfreeze.notices import Notify


class PlacedInput(KerasInput):
    """What ``Resumable`` and ``Skipping`` share. A subclass says how many items an epoch has and how they are dealt (``_dealing``), what
    its state is (``_state``), what a Keras is shown (``_batches``) and what a pass gives (``_opened``).

    Whoever saves checkpoints uses it so:

    - ``set_state(state)`` after a restore. The next pass over the data begins there: in ``next_epoch``, of which ``batches_done`` batches
      are trained already.
    - ``state_at(epoch, batches)`` for the state at a step of a ``fit``; in a loop ``advance(batches)`` after each step, and ``state()``.

    ``epoch`` is the input's own number: it goes on counting where a program calls ``fit`` again. Batches are counted from where this
    process has begun the epoch: behind those that were trained before a restart. Those that a float16 loss scale skips, or whose gradients
    are accumulated, count too.
    """

    def __init__(self) -> None:
        super().__init__()
        #: Who is told of what a user may want to know: a function of a level ("info") and a message.
        self.notify: Notify = to_logger
        self._standing = Standing()
        self._training: Pass | None = None  # the last pass that trains

    def __deepcopy__(self, memo: dict[int, Any]) -> PlacedInput:
        """An input of the same items, which are not copied, at the place of this one. What is handed out and trained of it is its own."""
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        with self._lock:
            vars(made).update(vars(self))
            made._standing = copy.deepcopy(self._standing, memo)
        KerasInput.__init__(made)
        made._training = None
        return made

    def _dealing(self) -> Dealing:
        """How the items of an epoch are dealt now."""
        raise NotImplementedError

    def _state(self, place: Place) -> dict[str, Any]:
        """The state with which the input goes on at ``place``."""
        raise NotImplementedError

    def _opened(self, place: Place) -> Pass:
        """Begins a pass that trains, at ``place``."""
        raise NotImplementedError

    @property
    def epoch(self) -> int:
        """The epoch, from 0, that is under way or, if all its batches are trained, the next one. Where nobody tells what is trained, an
        epoch counts as trained when its last batch was handed out."""
        with self._lock:
            handed_out = self._training is not None and self._training.finished and not self._standing.told
            return self.next_epoch if handed_out else self._standing.now(self._dealing()).epoch

    @property
    def next_epoch(self) -> int:
        """The epoch, from 0, with which the next pass begins."""
        with self._lock:
            return self._standing.upcoming(self._dealing()).epoch

    @property
    def batches_done(self) -> int:
        """How many batches of ``next_epoch`` were trained before: a whole epoch's batches less those that are left. 0 unless it was
        interrupted, and where less than a batch of the present size was trained: see ``begun``."""
        with self._lock:
            dealing = self._dealing()
            return dealing.batches(0) - dealing.batches(self._standing.upcoming(dealing).items)

    @property
    def batches_in_epoch(self) -> int:
        """How many batches a whole epoch has on each rank, trained ones too."""
        return self._dealing().batches(0)

    @property
    def begun(self) -> bool:
        """True if some items of ``next_epoch`` are trained already."""
        with self._lock:
            return self._standing.upcoming(self._dealing()).items > 0

    def begin(self, epoch: int) -> None:
        """The next pass is the one over ``epoch``, from 0, from its first item on."""
        self.go_to(arguments.whole_number("epoch=", epoch, 0, MAX_INT), 0)

    def go_to(self, epoch: int, items: int, counted: bool = False) -> None:
        """The next pass is the one over ``epoch``, of which ``items`` are trained already. ``counted``: ``fit`` counts the batches that
        were trained before, too, so ``len()`` is that of the whole epoch; else it is that of the pass."""
        with self._lock:
            self._standing, self._training, self._counted = Standing(epoch, items), None, counted

    def advance(self, batches: int = 1) -> None:
        """So many more batches of the epoch under way are trained: for loops, after each step. Counts what was trained, not what was
        handed out or read ahead."""
        with self._lock:
            self._standing.advance(batches)

    def begin_loop(self) -> None:
        """A loop begins that calls ``advance`` after each step: what is handed out, and not told of, is not trained."""
        with self._lock:
            self._standing.in_loop = self._standing.told = True

    def state(self) -> dict[str, Any]:
        """The state of what is trained by now, as ``advance`` tells: see ``state_at``."""
        with self._lock:
            return self._state(self._standing.now(self._dealing()))

    def state_at(self, epoch: int, batches: int) -> dict[str, Any]:
        """The state when so many ``batches`` of ``epoch`` are trained, counted as above: a few values that JSON can hold. Changes
        nothing."""
        with self._lock:
            return self._state(self._standing.place(epoch, batches, self._dealing()))

    def _require_state(self, state: Mapping[str, Any], names: tuple[str, ...]) -> None:
        """``CorruptError`` unless the ``state`` has values of all these ``names``, each an integer of 63 bits, true or false, or a
        list of such."""
        expected, todo = f"the state of a {type(self).__name__}", "pass what state() or state_at() gave"
        if missing := [name for name in names if name not in state]:
            found = f"none with {', '.join(missing)}"
            raise CorruptError(where="state", expected=f"{expected}, with {', '.join(names)}", found=found, todo=todo)
        if wrong := [name for name in names if not _holds_counts(state[name])]:
            found = f"{wrong[0]} {short(state[wrong[0]])}"
            raise CorruptError(where="state", expected=f"{expected}, of numbers from 0 on", found=found, todo=todo)

    def __iter__(self) -> Iterator[Any]:
        """A pass that trains: the batches of the next epoch, or of what is left of the interrupted one. While ``fit`` goes over the data
        it trains nothing, with a warning: it has all items, as for ``evaluate``."""
        yield from self._begun(self._use_of(kerases=False) or self._told_beside())

    def _begun(self, use: str) -> Pass:
        with self._lock:
            if use != FIT:
                return self._shown_to(use)
            self._training = self._opened(self._standing.open(self._dealing()))
            self._counted = False  # the epochs that follow are whole, or interrupted in this process
            return self._training

    def _shown_to(self, use: str) -> Pass:
        """Begins a pass that trains nothing."""
        raise NotImplementedError


def _holds_counts(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_holds_counts, value))
    return isinstance(value, (int, np.integer)) and 0 <= int(value) <= MAX_INT
