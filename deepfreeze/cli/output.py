"""Text as it is, and tables as wide as they need to be."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table
from rich.text import Text

_WIDE = 1000  # columns of what is no terminal: a file or a pipe has lines, not a width


def console() -> Console:
    """Standard output."""
    return Console() if sys.stdout.isatty() else Console(width=_WIDE)


def line(text: str) -> None:
    """Prints one line, whatever brackets and lengths it has."""
    console().print(text, markup=False, highlight=False, soft_wrap=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table. A column whose name begins with ">" is aligned to the right, without it. On a terminal long cells go
    on in the next line; nothing is cut off."""
    made = Table(box=None, pad_edge=False)
    for name in columns:
        made.add_column(Text(name.lstrip(">")), justify="right" if name.startswith(">") else "left", overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))
    console().print(made)


@contextlib.contextmanager
def bar(what: str, shown: bool = True) -> Iterator[Any]:
    """A progress bar on standard error, if that is a terminal and it is ``shown``: called with bytes done and in all."""
    if not shown or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
