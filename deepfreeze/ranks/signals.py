"""Notes SIGTERM during a training, so that a last checkpoint can be taken before the job has to end."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any

from deepfreeze.notices import Notify


class Sigterm:
    """From construction to ``close`` the first SIGTERM is only noted. The second one does what SIGTERM did before.

    Python lets only its main thread handle signals. In a training that runs in another thread SIGTERM does what it did before.
    """

    def __init__(self, notify: Notify) -> None:
        """``notify``: is told if this thread can't hear signals."""
        self.received = 0  # the signal's number once it has come, 0 before
        self._closed = threading.current_thread() is not threading.main_thread()
        if self._closed:
            notify("info", "training runs outside of the main thread: SIGTERM saves no last checkpoint")
        else:
            self._before = signal.signal(signal.SIGTERM, self._hear)

    def _hear(self, number: int, frame: Any) -> None:
        if not self.received and not self._closed:
            self.received = number
            return
        # The second signal; or one after close, if another library had replaced this handler, and has put it back since.
        self.close()
        if callable(self._before):
            self._before(number, frame)
        elif self._before != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    def close(self) -> None:
        """Puts the handler back that was there before, unless another library has replaced this one since. May be called twice."""
        closed, self._closed = self._closed, True
        if not closed and signal.getsignal(signal.SIGTERM) == self._hear:
            # A forgotten training may be freed on any thread, and only the main thread can put the handler back. A handler that is
            # closed passes the signal on. None stands for a handler that was not installed from Python: Python can't put it back.
            with contextlib.suppress(ValueError):
                signal.signal(signal.SIGTERM, signal.SIG_DFL if self._before is None else self._before)
