"""What every subcommand has: its help, ``--json``, exit codes told in the same place."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable
from typing import Any

_WIDTH = 100


def add(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], *, short: str, text: str, more: str
) -> argparse.ArgumentParser:
    """Adds a subcommand to argparse's ``commands``. ``short`` is its line in the list of commands, ``text`` says what it does,
    ``more`` stands below the options as it is: what they don't say, exit codes, examples."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=short,
        description=textwrap.fill(" ".join(text.split()), _WIDTH),
        epilog=textwrap.dedent(more).strip("\n"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON, complete, instead of text")
    parser.set_defaults(run_command=run)
    return parser


def count(text: str) -> int:
    """An argument that is a whole number, 1 or more."""
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 on")
    return int(text)
