"""Numbers and paths as people read them: sizes, times, counts and directories in messages."""

from __future__ import annotations

import os
from datetime import datetime, timezone


def size(nbytes: float) -> str:
    """Bytes in decimal units: "512 B", "1.5 kB", "577 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 999.5:
            return f"{_short(nbytes)} {unit}"
        nbytes /= 1000
    return f"{_short(nbytes)} TB"


def duration(seconds: float) -> str:
    """A time that something took: "9 ms", "1.2 s", "3 min", "2.5 h", "4 days"."""
    if seconds < 0.9995:
        return f"{seconds * 1e3:.0f} ms"
    for unit, most, length in (("s", 59.5, 60), ("min", 59.5, 60), ("h", 47.5, 24)):
        if seconds < most:
            return f"{_short(seconds)} {unit}"
        seconds /= length
    return f"{seconds:.0f} days"


def age(created: str, now: float) -> str:
    """The time since ``created``, a time in UTC such as 2026-11-21T03:35:58Z: "2 min". ``now``: seconds since 1970."""
    then = datetime.fromisoformat(created.rstrip("Z")).replace(tzinfo=timezone.utc).timestamp()
    # The clocks of two nodes differ, so a checkpoint may seem to come from the future.
    return duration(max(0.0, now - then))


def count(number: int, noun: str) -> str:
    """A number and its noun: "1 checkpoint", "12 checkpoints"."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def near(path: str) -> str:
    """The path as the user knows it: relative to the working directory if it is below it."""
    short = os.path.relpath(path) if os.path.isabs(path) else path
    return path if short.startswith("..") else short


def _short(value: float) -> str:
    """The whole number, with one decimal below ten: "577", "1.2", "9"."""
    return f"{value:.1f}".removesuffix(".0") if value < 9.95 else f"{value:.0f}"
