"""Printing: lines, tables and progress bars. A terminal's width is kept to; so is ``COLUMNS``, if it is set. What goes into a file or a
pipe has one line for each row."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.text import Text

from deepfreeze import wording
from deepfreeze.cli import columns
from deepfreeze.errors import Error


def width(stream: TextIO) -> int | None:
    """The number of columns of a line that goes to ``stream``; None if it is no terminal, and COLUMNS is not set."""
    asked = os.environ.get("COLUMNS", "")
    if stream.isatty() or (asked.isdecimal() and int(asked) > 0):
        return shutil.get_terminal_size().columns
    return None


def line(text: str) -> None:
    """Prints one line. On a terminal it goes on in the next line, indented, where it is too long."""
    for part in columns.hanging(text, width(sys.stdout)):
        print(part)


def notify(level: str, message: str) -> None:
    """Prints a message of any level to standard error."""
    for part in columns.hanging(f"deepfreeze: {message}", width(sys.stderr) if sys.stderr.isatty() else None):
        print(part, file=sys.stderr)


def complain(error: Error) -> None:
    """Prints an error to standard error."""
    notify("error", str(error))


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table; ``heads`` as for ``columns.table``."""
    for text in columns.table(heads, rows, width(sys.stdout)):
        print(text)


def facts(pairs: Sequence[tuple[str, str]]) -> None:
    """Prints names and values, one pair a line, the values below each other."""
    longest = max(len(name) for name, _ in pairs)
    wide = width(sys.stdout)
    for name, text in pairs:
        parts = columns.wrapped(text, None if wide is None else max(1, wide - longest - 2))
        for number, part in enumerate(parts):
            print(f"{(name if number == 0 else '').ljust(longest)}  {part}")


@contextlib.contextmanager
def bar(what: str, shown: bool = True) -> Iterator[Any]:
    """A progress bar on standard error. The ``with`` block gets a function, which is called with (bytes done so far, bytes in all). Without
    ``shown``, or if standard error is no terminal, the function does nothing. ``what``: the text before the bar."""
    if not shown or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    parts = (TextColumn("{task.description}", markup=False), BarColumn(), _Done())
    with Progress(*parts, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


@contextlib.contextmanager
def waiting(what: str, shown: bool = True) -> Iterator[None]:
    """Shows on standard error for how long the ``with`` block has been under way, if standard error is a terminal and ``shown``. ``what``:
    the text before the time."""
    if not shown or not sys.stderr.isatty():
        yield
        return
    parts = (TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*parts, console=Console(stderr=True), transient=True) as progress:
        progress.add_task(what, total=None)
        yield


class _Done(ProgressColumn):
    """How much is done, of how much, how fast: "120 MB of 577 MB, 1.2 GB/s"."""

    def render(self, task: Task) -> Text:
        of = "" if task.total is None else f" of {wording.size(task.total)}"
        speed = "" if task.speed is None else f", {wording.size(task.speed)}/s"
        return Text(f"{wording.size(task.completed)}{of}{speed}")
