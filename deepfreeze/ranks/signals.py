"""Notes signals during a training: those after which a last checkpoint is taken, and those that a policy wants to hear of."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Sequence
from typing import Any

from deepfreeze.notices import Notify


class Signals:
    """From construction to ``close`` this process notes signals. ``last``: the number of the first signal that has come and asks for a last
    checkpoint, 0 before.

    A signal that asks for a last checkpoint is only noted when it comes for the first time; later it does what it did before. A signal that
    is noted for a policy also does what it did before, if the program had a handler for it. A forked child, which has the handlers of its
    parent, notes nothing: there a signal does what it did before.

    Python lets only its main thread handle signals. In a training that runs in another thread signals do what they did before.
    """

    def __init__(self, last: Sequence[int], noted: Sequence[int], notify: Notify) -> None:
        """``last``: the numbers of the signals that ask for a last checkpoint; ``noted``: of those that are noted for a policy, and of no
        other list; ``notify``: is told if this thread can't hear signals."""
        self.last = 0
        self._heard: set[int] = set()
        self._noted: list[int] = []
        self._for_policy = frozenset(noted)
        self._pid = os.getpid()
        self._before: dict[int, Any] = {}
        self._closed = threading.current_thread() is not threading.main_thread()
        if not self._closed:
            for number in (*last, *noted):
                self._before[number] = signal.getsignal(number)  # noted first: the signal may come at once
                signal.signal(number, self._hear)
        elif last or noted:
            names = ", ".join(signal.Signals(number).name for number in (*last, *noted))
            notify("info", f"training runs outside of the main thread: {names} is not heard, and saves no checkpoint")

    def take(self) -> tuple[int, ...]:
        """The signals that were noted for the policy since the last call, each as often as it has come."""
        found = []
        while self._noted:
            found.append(self._noted.pop(0))  # a signal may come between any two of these lines
        return tuple(found)

    def _hear(self, number: int, frame: Any) -> None:
        listens = not self._closed and os.getpid() == self._pid
        before = self._before[number]
        if listens and number in self._for_policy:
            self._noted.append(number)
            # Python's own handler of SIGINT raises KeyboardInterrupt: it is what ends a program, and no handler of the program's.
            if callable(before) and before is not signal.default_int_handler:
                before(number, frame)
        elif listens and number not in self._heard:
            self._heard.add(number)
            self.last = self.last or number
        else:
            # Or one after close: another library had replaced this handler, and has put it back since, or calls it.
            installed = signal.getsignal(number) == self._hear
            self._give_back(number)
            if callable(before):
                before(number, frame)
            elif before != signal.SIG_IGN and installed:  # else whoever calls it decides
                signal.signal(number, signal.SIG_DFL)
                signal.raise_signal(number)

    def close(self) -> None:
        """Puts the handlers back that were there before, unless another library has replaced one since. May be called twice."""
        closed, self._closed = self._closed, True
        if not closed:
            for number in self._before:
                self._give_back(number)

    def _give_back(self, number: int) -> None:
        if signal.getsignal(number) == self._hear:
            # A forgotten training may be freed on any thread, and only the main thread can put the handler back. A handler that is
            # closed passes the signal on. None stands for a handler that was not installed from Python: Python can't put it back.
            before = self._before[number]
            with contextlib.suppress(ValueError):
                signal.signal(number, signal.SIG_DFL if before is None else before)
