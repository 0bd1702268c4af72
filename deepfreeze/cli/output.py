"""Printing: lines, tables and progress bars."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

_WIDE = 1000  # columns of a file or a pipe, which have no width: a table's rows are not broken there


def console() -> Console:
    """Standard output."""
    return Console() if sys.stdout.isatty() else Console(width=_WIDE)


def line(text: str) -> None:
    """Prints one line as it is: brackets are no markup, and a long line is not broken."""
    console().print(text, markup=False, highlight=False, soft_wrap=True)


def notify(level: str, message: str) -> None:
    """Prints a message of any level to standard error."""
    print(f"deepfreeze: {message}", file=sys.stderr)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table. A ``>`` before a column's name aligns the column to the right, and is not printed. On a terminal a long cell is
    continued in the next line."""
    grid = Table(box=None, pad_edge=False)
    for name in columns:
        grid.add_column(Text(name.lstrip(">")), justify="right" if name.startswith(">") else "left", overflow="fold")
    for row in rows:
        grid.add_row(*map(Text, row))
    console().print(grid)


@contextlib.contextmanager
def bar(what: str, shown: bool = True) -> Iterator[Any]:
    """A progress bar on standard error. The ``with`` block gets a function, which is called with (bytes done so far, bytes in all). Without
    ``shown``, or if standard error is no terminal, the function does nothing. ``what``: the text before the bar."""
    if not shown or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
