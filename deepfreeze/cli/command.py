"""The parts that all subcommands share: the form of their help, ``--json``, types of arguments."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Callable
from typing import Any

_WIDTH = 80  # columns of a help text


def add(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], *, short: str, text: str, more: str
) -> argparse.ArgumentParser:
    """Adds the subcommand ``name`` to ``commands``, the object that argparse's ``add_subparsers`` returns, and returns its parser. ``run``:
    called with the parsed arguments, returns the exit code. Of the help, ``short`` is the line in the list of commands, ``text`` the
    paragraph above the options, ``more`` the lines below them: explanations, exit codes, examples. ``more`` is filled by ``filled``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=short,
        description=textwrap.fill(" ".join(text.split()), _WIDTH),
        epilog=filled(more),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON, complete, instead of text")
    parser.set_defaults(run_command=run)
    return parser


def filled(text: str) -> str:
    """A text in lines of at most 80 columns. Lines without indent make paragraphs, which are filled; an indented line stays a line of its
    own, and goes on below its last column if it is too long."""
    lines: list[str] = []
    paragraph: list[str] = []
    for line in [*text.strip("\n").splitlines(), ""]:
        if line and not line.startswith(" "):
            paragraph.append(line)
            continue
        lines += textwrap.wrap(" ".join(paragraph), _WIDTH, break_on_hyphens=False, break_long_words=False)
        paragraph = []
        start = re.match(r" *(\S+(?: \S+)* {2,})?", line)
        indent = " " * (start.end() if start else 0)
        lines += textwrap.wrap(line, _WIDTH, subsequent_indent=indent, break_on_hyphens=False) or [""]
    return "\n".join(lines[:-1])


def count(text: str) -> int:
    """The type of an argument that is a whole number, 1 or more."""
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)
