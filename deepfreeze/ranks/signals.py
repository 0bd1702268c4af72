"""Hears SIGTERM while a training goes on, so that a last checkpoint can be taken before the job has to end."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Any

log = logging.getLogger("deepfreeze")


class Sigterm:
    """From construction to ``close`` the first SIGTERM is only noted; the second one does what it did before.

    Python hears signals in its main thread alone: a training in another thread hears none, and they do what they did before.
    """

    def __init__(self) -> None:
        self.received = 0  # the signal's number, once it has come
        self._closed = threading.current_thread() is not threading.main_thread()
        if self._closed:
            log.info("training in a thread: SIGTERM is not heard")
        else:
            self._before = signal.signal(signal.SIGTERM, self._hear)

    def _hear(self, number: int, frame: Any) -> None:
        if not self.received and not self._closed:
            self.received = number
            return
        # Heard after close: somebody who took the signal over meanwhile has put this handler back.
        self.close()
        if callable(self._before):
            self._before(number, frame)
        elif self._before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def close(self) -> None:
        """Puts the handler back that was there before, unless somebody has put another one over this since."""
        if not self._closed and signal.getsignal(signal.SIGTERM) == self._hear:
            # None: it was not Python's, and can't be put back.
            signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)
        self._closed = True
