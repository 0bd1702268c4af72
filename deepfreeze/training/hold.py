"""The trainings of this process, each with its run. A notebook's cell that is interrupted leaves a training behind, because the traceback
keeps its objects, and with them the run: the next training in this run takes it over."""

from __future__ import annotations

import inspect
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any

from deepfreeze import wording
from deepfreeze.errors import RunError
from deepfreeze.events.events import Events
from deepfreeze.ranks.world import World, each
from deepfreeze.state.private_api import in_fit

# By the real path of a run's directory, on every rank: the training that has the run.
_holds: dict[str, weakref.ref[Hold]] = {}


class Hold:
    """The hold that one training has of its run, from ``begin`` until ``end``. The training thread calls all methods. ``begin`` may be
    called again, by the thread that trains from then on."""

    def __init__(self, who: str, give_way: Callable[[], None]) -> None:
        """``who``: the function that the user has called, for messages; ``give_way``: a method of the training, which closes its run."""
        self._run, self.who, self._lost = "", who, False
        self._give_way = weakref.WeakMethod(give_way)  # no cycle: the run is closed when the user drops the training
        self._goes_on: Callable[[], bool] = lambda: False
        self._thread, self._pid = threading.current_thread(), os.getpid()

    def by_callback(self, callback: Any) -> None:
        """``callback``: the object that Keras's ``fit`` has in the place of the training, which trains while this thread is in such a
        ``fit``."""
        found = weakref.ref(callback)
        self._goes_on = lambda: in_fit(found())

    def by_loop(self, loop: Any) -> None:
        """``loop``: the object that the program has in the place of the training. It trains while a function of this thread has it: a cell
        of a notebook is none, whose names stay when it has ended."""
        found = weakref.ref(loop)
        self._goes_on = lambda: _in_function(found())

    def begin(self, run: str) -> None:
        """The training has ``run``, a path."""
        self._run, self._lost = os.path.realpath(run), False
        self._thread, self._pid = threading.current_thread(), os.getpid()
        _holds[self._run] = weakref.ref(self)

    def end(self) -> None:
        """The training has given the run back."""
        if self._run in _holds and _holds[self._run]() in (self, None):
            del _holds[self._run]

    def require(self) -> None:
        """``RunError`` if another training of this process has taken the run."""
        if self._lost:
            raise RunError(
                where=self._run,
                expected=f"this {self.who} to have the run until it ends",
                found="another one of this process there, which has begun since",
                todo="end or close() one training before another one of the same run begins, or give each a run of its own",
            )

    def take_over(self, run: str, world: World, events: Events, said: bool) -> None:
        """Collective. Closes the training that has ``run``, if every rank has one that was left behind. Otherwise the lock decides, which
        refuses this training. ``events``: of this training, which hear of it on rank 0; ``said``: as a line for the user."""
        before = _holds.get(os.path.realpath(run), lambda: None)()
        left = before is not None and before is not self and before.left_behind
        if not all(world.gather(left)):
            return
        assert before is not None
        each(world, before.lose)
        line = f"{wording.near(run)}: the {before.who} that an interrupted training has left here is closed"
        if world.rank == 0:
            events.tell(line, said)

    @property
    def left_behind(self) -> bool:
        """Whether the training runs neither in another thread nor further up in this one. A forked child has a copy of the training, which
        is its parent's."""
        elsewhere = self._thread is not threading.current_thread() and self._thread.is_alive()
        return not elsewhere and self._pid == os.getpid() and not self._goes_on()

    def lose(self) -> None:
        """Closes the training."""
        self._lost = True
        give_way = self._give_way()
        if give_way is not None:
            give_way()


def _in_function(thing: Any) -> bool:
    """Whether a function that this thread is in has ``thing`` in a variable."""
    frame: FrameType | None = None if thing is None else sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_flags & inspect.CO_NEWLOCALS and any(value is thing for value in frame.f_locals.values()):
            return True
        frame = frame.f_back
    return False
