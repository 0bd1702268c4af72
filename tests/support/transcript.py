"""A page with a transcript: files that the reader writes, commands that he types, and what each command prints. Runs such a page, and
compares what was printed.

A block with the comment ``<!-- file: train.py -->`` before it is a file. A block of the language ``console`` has commands behind ``$ ``,
each with the lines that it prints below it. With the comment ``<!-- other figures each time -->`` before the block, numbers don't count."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from pathlib import Path

from tests.support import jobs, terminal

OTHER_FIGURES = "other figures each time"
_BLOCK = re.compile(
    r"(?P<head>(?:^<!-- (?P<note>[^\n]*?) -->\n)?^```(?P<language>\w+)\n)(?P<body>.*?)^```$", re.M | re.S
)
# Patterns of the text that differs from one run of a page to the next, each with the text that takes its place in a comparison.
_DIFFERS = [
    # Where a line is broken goes by its figures: by the terminal, in a line of Keras about an epoch; between two words, in a line of ours.
    (r"^(\d+/\d+ - .{70,})\n", r"\1"),
    (r"^((?:deepfreeze: |runs/|\d{4}-).*)\n  (?=\S)", r"\1 "),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?", "DATE"),
    (r"\b[0-9a-f]{32}\b", "ID"),
    (r"^\[1\] \d+$", "[1] PID"),
    (r"\b(host|pid)=\S+", r"\1=THIS"),
    (r"\b\d+(\.\d+)? [kMGT]?B/s", "SPEED"),
    # A time, as DeepFreeze (9 ms) and as Keras (13ms/step) write it.
    (r"\b\d+(\.\d+)? (ms|s|min|h|days)\b|\b\d+[mu]?s\b", "TIME"),
    (r"\bseconds=\S+|\bwritten=\S+", "TIME"),
    # Of Keras and TensorFlow: the page is also run with others.
    (r"\b\d+\.\d+\.\d+\b", "VERSION"),
    # The last epoch is as many batches shorter as the kill has left of the interrupted one.
    (r"\bbatch \d+ of", "batch N of"),
    # Metrics: another processor rounds in another way. Sizes stay.
    (r"\b\d+\.\d+(e[+-]\d+)?\b(?! [kMGT]?B)", "FLOAT"),
    # The width of a column goes by what is in it.
    (r" {2,}", "  "),
]  # fmt: skip
# In blocks with OTHER_FIGURES.
_NUMBERS = [
    (r"\d+(\.\d+)?(e[+-]\d+)?", "#"),
    (r"^ +", ""),
    (r" +", " "),
    # The rules have not yet said of the newest checkpoint why it stays.
    (r" newest #$", ""),
    # A kill comes in the middle of an epoch, or between two.
    (r"begins again|comes next", "GOES ON"),
    # A kill comes while a checkpoint is being written, or not.
    (r"^unfinished: .*\n", ""),
    # Which weight has changed most: the kill decides which batches came twice.
    (r"^\S+/\S+( FLOAT| #)+$", "WEIGHT"),
    # How many lines of a kind there are.
    (r"^(.+\n)\1+", r"\1"),
    (r"^(.+\n.+\n)\1+", r"\1"),
]  # fmt: skip


def files(page: str) -> dict[str, str]:
    """The files that the reader writes, by their names."""
    named = ((found["note"] or "", found["body"]) for found in _BLOCK.finditer(page))
    return {note.removeprefix("file: "): body for note, body in named if note.startswith("file: ")}


def entries(body: str) -> list[tuple[str, str]]:
    """(command, what it prints) of each command in a block; what is printed ends with a line feed, or is empty."""
    assert body.startswith("$ "), f"a transcript begins with a command: {body[:40]!r}"
    return [(one[1], one[2]) for one in re.finditer(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", body, re.M)]


def commands(page: str) -> dict[str, str]:
    """What each command prints, by the command."""
    return {command: printed for _, body in _transcripts(page) for command, printed in entries(body)}


def _transcripts(page: str) -> list[tuple[str, str]]:
    """(note, body) of each block with commands."""
    blocks = _BLOCK.finditer(page)
    return [(found["note"] or "", found["body"]) for found in blocks if found["language"] == "console"]


def _with(page: str, change: Callable[[str, str, str], str]) -> str:
    """The page with ``change(note, command, printed)`` in the place of what each command prints."""

    def block(found: re.Match) -> str:
        if found["language"] != "console":
            return found[0]
        note = found["note"] or ""
        body = "".join(f"$ {command}\n{change(note, command, text)}" for command, text in entries(found["body"]))
        return f"{found['head']}{body}```"

    return _BLOCK.sub(block, page)


def run(page: str, folder: Path) -> str:
    """Writes the page's files into an empty folder and types its commands there. Returns the page with what they print now."""
    for name, body in files(page).items():
        (folder / name).write_text(body)

    env = jobs.environment()
    del env["PYTHONWARNINGS"]  # the reader sees them too
    with terminal.shell(folder, env) as shell:

        def typed(note: str, command: str, printed: str) -> str:
            text = shell.run(command)
            assert not re.search(r"^(\$ |```)", text, re.M), f"{command}: its output would end the page's block\n{text}"
            return f"{text}\n" if text else ""

        return _with(page, typed)


def alike(page: str) -> str:
    """The page with the same text wherever two runs of it may print another one."""

    def without(note: str, command: str, printed: str) -> str:
        for pattern, instead in _DIFFERS + (_NUMBERS if note == OTHER_FIGURES else []):
            printed = re.sub(pattern, instead, printed, flags=re.M)
        return printed

    return _with(page, without)


def changes(page: str, now: str) -> str:
    """What two runs of a page have printed differently, as the lines of a diff; "" if nothing."""
    old, new = alike(page).splitlines(), alike(now).splitlines()
    return "\n".join(difflib.unified_diff(old, new, "the page shows", "printed now", lineterm=""))
