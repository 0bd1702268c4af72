"""Text in a given number of columns: lines that break between words, and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells

_GAP = "  "  # between two columns of a table
_NARROW = 18  # cells that a folded column keeps, if its text is as long; optional columns go first
# Where a word that is longer than a line is broken: behind these, the first that helps.
_SEAMS = ("/", "_", ".,;:=-")


def wrapped(text: str, width: int | None) -> list[str]:
    """The text in lines of at most ``width`` cells, None for one line. A line breaks between words. Only a word that is longer than a
    line is broken, behind a slash if it has one; nothing of it is left out."""
    if width is None or cell_len(text) <= width:
        return [text]
    lines = [""]
    for piece in _pieces(text, width):
        if cell_len(lines[-1] + piece.rstrip()) > width:
            if lines[-1].strip():
                lines.append("")
            else:
                lines[-1] = ""  # an indent that leaves no room for a wide letter
        lines[-1] += piece
    return [one.rstrip() for one in lines]


def hanging(text: str, width: int | None) -> list[str]:
    """As ``wrapped``, with the lines behind the first indented by two cells more than the first."""
    if width is None or cell_len(text) <= width:
        return [text]
    before = len(text) - len(text.lstrip())
    indent = " " * (before + 2)
    first, *more = wrapped(text, width)
    rest = text[before + len(first.lstrip()) :].strip() if more else ""
    return [first, *(indent + one for one in wrapped(rest, max(1, width - len(indent))) if rest)]


@dataclass(frozen=True)
class _Column:
    """A column. ``right``: aligned to the right; ``folds``: its cells may have several lines; ``optional``: left out where the table would
    be too wide."""

    name: str
    right: bool
    folds: bool
    optional: bool

    @classmethod
    def of(cls, text: str) -> _Column:
        name = text.lstrip(">~?")
        marks = text[: len(text) - len(name)]
        return cls(name, ">" in marks, "~" in marks, "?" in marks)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """The lines of a table of at most ``width`` cells, None for as wide as it needs. Signs before a column's name are not printed: ``>``
    aligns it to the right, ``~`` lets long cells go on in the next line, ``?`` says that the column is left out where there is no room."""
    heads = [_Column.of(text) for text in columns]
    cells = [[head.name, *(row[n] for row in rows)] for n, head in enumerate(heads)]
    widths = _layout(heads, cells, width)
    lines = []
    for number in range(len(rows) + 1):
        folded = [wrapped(cells[n][number], w if heads[n].folds else None) for n, w in widths.items()]
        for part in range(max(map(len, folded))):
            texts = [column[part] if part < len(column) else "" for column in folded]
            padded = [_padded(text, w, heads[n].right) for text, (n, w) in zip(texts, widths.items(), strict=True)]
            lines.append(_GAP.join(padded).rstrip())
    return lines


def _layout(heads: Sequence[_Column], cells: Sequence[Sequence[str]], width: int | None) -> dict[int, int]:
    """The width of each column that stays, by its index. First cells fold between words, down to a column's longest name or ``_NARROW``;
    then optional columns go, the last one first; then all cells fold between words; then names break."""
    natural = [max(map(cell_len, column)) for column in cells]
    if width is None:
        return dict(enumerate(natural))
    whole = [
        max(map(_longest, column)) if head.folds else n for head, n, column in zip(heads, natural, cells, strict=True)
    ]
    least = [max(n, min(m, _NARROW)) for n, m in zip(whole, natural, strict=True)]
    chosen = list(range(len(heads)))
    for n in (n for n in reversed(range(len(heads))) if heads[n].optional):
        if _sum(least[m] for m in chosen) > width:
            chosen.remove(n)
    widths = [natural[n] for n in chosen]
    for floor in (max(natural), _NARROW, 1):  # no name breaks; long names break; all names break
        widths = _shrunk(widths, [min(whole[n], floor) if heads[n].folds else natural[n] for n in chosen], width)
    return dict(zip(chosen, widths, strict=True))


def _sum(widths: Sequence[int] | Iterator[int]) -> int:
    """The width of a table whose columns have these widths."""
    found = list(widths)
    return sum(found) + len(_GAP) * (len(found) - 1)


def _shrunk(widths: list[int], floors: list[int], width: int) -> list[int]:
    """The widths with which the table fits ``width``, as far as ``floors`` allow. The last column shrinks first: the first has names."""
    widths = list(widths)
    for n in reversed(range(len(widths))):
        widths[n] -= min(max(0, _sum(widths) - width), max(0, widths[n] - floors[n]))
    return widths


def _longest(text: str) -> int:
    """The cells of the longest part of a text that only breaking a name could shorten."""
    return max(map(cell_len, re.findall(r"[^\s/]+/*|/+", text)), default=0)


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * max(0, width - cell_len(text))
    return blanks + text if right else text + blanks


def _pieces(text: str, width: int) -> Iterator[str]:
    """The parts of a text between which a line may break, each with the blanks behind it."""
    for word in re.findall(r"\s*\S+\s*", text):
        yield from _broken(word, width, _SEAMS)


def _broken(word: str, width: int, seams: Sequence[str]) -> Iterator[str]:
    if cell_len(word.rstrip()) <= width:
        yield word
    elif not seams:
        yield from chop_cells(word, width)
    else:
        inside = f"[^{re.escape(seams[0])}]"
        for part in re.findall(f"{inside}+[{re.escape(seams[0])}]*|[{re.escape(seams[0])}]+", word):
            yield from _broken(part, width, seams[1:])
