"""Shows messages to people, as lines of the logger ``deepfreeze``, as warnings, and as lines on standard error. No other module does."""

from __future__ import annotations

import logging
import os
import sys
import textwrap
from collections.abc import Callable
from typing import Any

from deepfreeze.events.checkpoint_warning import warn
from deepfreeze.events.event import Diverged, Event, Failed, Notice, Skipped, Stop, Superseded

log = logging.getLogger("deepfreeze")
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING}


def to_logger(level: str, message: str) -> None:
    """A ``Notify`` (``deepfreeze.notices``) for a function that is called by itself, without the events of a training."""
    _log(_LEVELS[level], message)


class Messages:
    """A listener that logs and warns of events. The training thread calls it: Python shows a warning with the line of the user's program
    that called ``fit`` or ``step``, and finds this line on the thread's stack."""

    def on(self, event: Event) -> None:
        """Shows ``event`` if it is of a kind in ``_SHOW``. The other kinds, such as ``Captured``, come too often to be shown."""
        show = _SHOW.get(type(event))
        if show is not None:
            show(event)


def _skipped(event: Skipped) -> None:
    if event.why == "full":
        _log(logging.INFO, f"no room for another checkpoint in memory: step {event.step} was skipped")
    elif event.why == "storage":
        _log(logging.INFO, f"no room for another checkpoint in the run (storage=): step {event.step} was skipped")
    else:
        _log(logging.WARNING, f"the ranks had different weights when training began: step {event.step} is not saved")


def _superseded(event: Superseded) -> None:
    _log(logging.INFO, f"step {event.step} was given up for the newer step {event.by}")


def _failed(event: Failed) -> None:
    if not event.raised and not event.tried:
        warn(event.message)


def _diverged(event: Diverged) -> None:
    if not event.refused:
        warn(event.message)


def _notice(event: Notice) -> None:
    if event.warned:
        warn(event.message)
    elif event.said:
        # The line is written by one call, so that the lines of several processes do not mix. Standard output belongs to the program and
        # to Keras's progress bar.
        sys.stderr.write(_folded(f"deepfreeze: {event.message}") + "\n")
        sys.stderr.flush()
    else:
        to_logger(event.level, event.message)


def _folded(line: str) -> str:
    """The line, as it is in a log file or a notebook. A narrow terminal would break it in the middle of a word: there it goes on in the
    next line, indented, between two words."""
    if not sys.stderr.isatty():
        return line
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or len(line)  # 0: nobody has said how wide it is
    except (AttributeError, OSError, ValueError):  # a program's own stream, which only says that it is a terminal
        return line
    return textwrap.fill(line, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _stop(event: Stop) -> None:
    why = event.signal or "the job ends soon"
    _log(logging.WARNING, f"{why}: committing step {event.step}, then training ends")


def _log(level: int, message: str) -> None:
    # In a program that has set up no logging, Python prints the bare text: it must say who speaks.
    log.log(level, "%s", message if log.hasHandlers() else f"deepfreeze: {message}")


_SHOW: dict[type[Event], Callable[[Any], None]] = {
    Skipped: _skipped,
    Failed: _failed,
    Superseded: _superseded,
    Diverged: _diverged,
    Notice: _notice,
    Stop: _stop,
}
