"""A line on standard error while the end of training waits: only if it waits, and only on rank 0."""

from __future__ import annotations

import sys
import time
from types import TracebackType


class Progress:
    """``with Progress("committing", shown) as p: p.update("step 40")``; rewrites one line on a terminal, and adds one every
    ten seconds elsewhere."""

    def __init__(self, what: str, shown: bool) -> None:
        self._what = what
        self._shown = shown
        self._begin = self._last = time.monotonic()
        self._dirty = False

    def __enter__(self) -> Progress:
        return self

    def update(self, detail: str) -> None:
        """Shows that it is still going on."""
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
