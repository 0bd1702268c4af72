"""The rows that Keras's ``CSVLogger`` has written, and how many of them belong to a training that goes on."""

from __future__ import annotations

import contextlib
import csv
import os


def size(path: str) -> int:
    """The bytes of the file, 0 if there is none."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def cut(path: str, end: int) -> None:
    """Leaves the first ``end`` bytes of the file, and does nothing if it has no more."""
    if end < size(path):
        os.truncate(path, end)


def end_of_rows(path: str, separator: str, begin: int, epoch: int | None = None, end: int | None = None) -> int:
    """The offset behind the rows that stay. These are whole rows: a row that a kill has cut short, and all behind it, do not stay.

    ``begin``: the offset of the first row of the ``fit``, before which everything stays; ``separator``: the character between two values;
    ``epoch``: rows of this epoch and of later ones do not stay; ``end``: rows that end behind this offset do not stay."""
    have = size(path)
    if have <= begin:
        return have
    with open(path, "rb") as file:
        file.seek(begin)
        lines = file.read().splitlines(keepends=True)
    kept, taken, columns = begin, 0, None
    rows = csv.reader((line.decode("utf-8", "replace") for line in lines), delimiter=separator)
    with contextlib.suppress(csv.Error):  # of bytes that are no text, as a crash of the machine may leave them
        for row in rows:
            nbytes = sum(map(len, lines[taken : rows.line_num]))
            taken = rows.line_num
            columns = columns or len(row)
            whole = lines[taken - 1].endswith(b"\n") and len(row) == columns
            if not whole or not _stays(row, epoch) or (end is not None and kept + nbytes > end):
                break
            kept += nbytes
    return kept


def _stays(row: list[str], epoch: int | None) -> bool:
    """Whether it is the header, or the row of an epoch before ``epoch``."""
    if row[:1] == ["epoch"]:
        return True
    try:
        number = int(row[0])
    except (IndexError, ValueError):
        return False
    return epoch is None or number < epoch
