"""A line on standard error that shows how long the end of training has been waiting for commits."""

from __future__ import annotations

import sys
import time
from types import TracebackType


class WaitLine:
    """Shows a line such as "deepfreeze: committing step 40 (12 s)". On a terminal each ``update`` rewrites the line, and the end of the
    ``with`` block clears it. Elsewhere, in a log file for example, a line is added every ten seconds. Example:

        with WaitLine("committing", shown=True) as line:
            line.update("step 40")
    """

    def __init__(self, what: str, shown: bool) -> None:
        self._what = what
        self._shown = shown
        self._begin = self._last = time.monotonic()
        self._dirty = False

    def __enter__(self) -> WaitLine:
        return self

    def update(self, detail: str) -> None:
        """Shows the line with ``detail`` and the seconds since construction. To be called a few times per second."""
        if not self._shown:
            return
        now = time.monotonic()
        text = f"deepfreeze: {self._what} {detail} ({now - self._begin:.0f} s)"
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{text}\x1b[K")
            sys.stderr.flush()
            self._dirty = True
        elif now - self._last >= 10:
            sys.stderr.write(text + "\n")
            self._last = now

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._dirty:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
