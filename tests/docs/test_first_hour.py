"""docs/guide/first-hour.md is what happens: its files are written, its commands typed in a terminal, and what they print compared.

Run as a program (``python -m tests.docs.test_first_hour``), this file writes the page's output and its pictures anew."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import pytest

from deepfreeze.cli.main import parser
from tests.support import jobs, terminal, transcript

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guide" / "first-hour.md"
FIGURES = ROOT / "docs" / "figures"
KERASES = r"Epoch |\d+/\d+ - |.*deepfreeze_committed"  # lines of Keras about an epoch, which the picture leaves out
# The commands of each picture.
DRAWN = {
    "first-hour.png": ("python train.py", "deepfreeze ls runs/waves", "deepfreeze show runs/waves"),
    "first-hour-commands.png": ("deepfreeze diff runs/waves@880 runs/waves@900", "deepfreeze --help"),
}
ANEW = "If that is as it should be: .venv/bin/python -m tests.docs.test_first_hour writes the page anew."


def picture(page: str, commands: tuple[str, ...]) -> str:
    """The text of a picture of the page: these commands, with what they print."""
    printed = transcript.commands(page)
    ours = [line for line in printed["python train.py"].splitlines() if not re.match(KERASES, line)]
    printed["python train.py"] = "\n".join([*ours[:-1], "...", ours[-1], ""])
    return "\n".join(f"$ {command}\n{printed[command]}" for command in commands)


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.tensorflow
def test_every_command_prints_what_the_page_shows(tmp_path):
    page = PAGE.read_text()
    changes = transcript.changes(page, transcript.run(page, tmp_path))
    assert not changes, f"{changes}\n{ANEW}"


def test_the_page_has_the_whole_hour_in_80_columns():
    commands = transcript.commands(PAGE.read_text())
    ours = [command.split()[1:] for command in commands if command.startswith("deepfreeze ")]
    assert {words[0] for words in ours} >= {"ls", "show", "verify", "diff", "log", "tag", "export", "--help"}
    for words in ours:
        if words != ["--help"]:
            parser().parse_args(words)
    lines = [line for printed in commands.values() for line in printed.splitlines()]
    assert len(lines) > 60 and [line for line in lines if len(line) > terminal.COLUMNS] == []


@pytest.mark.parametrize("name", DRAWN)
def test_the_picture_shows_what_the_page_shows(name):
    assert terminal.drawn(FIGURES / name) == picture(PAGE.read_text(), DRAWN[name]), ANEW
    assert (FIGURES / name).stat().st_size < 110_000
    assert f"../figures/{name}" in PAGE.read_text()


# How two runs of the page are compared

SHOWN = """\
Text.

<!-- other figures each time -->
```console
$ deepfreeze ls runs/a
step    size   age  committed (UTC)      state
 225  1.2 kB  18 s  2026-11-21 03:35:58  full
 250  1.2 kB   2 s  2026-11-21 03:36:14  full
unfinished: step 275
```

```console
$ cd .
$ deepfreeze ls runs/b
step    size   age  committed (UTC)      state
  50  1.2 kB   1 s  2026-11-21 03:36:15  full
loss: 0.125
```
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (" 225  1.2 kB  18 s  2026-11-21 03:35:58  full\n", ""),
        (
            "unfinished",
            "3000  1.2 kB  0 ms  2026-11-21 03:36:14  full\n3025  1.2 kB  0 ms  2026-11-21 03:36:14  full\nunfinished",
        ),
        ("unfinished: step 275\n", ""),
        (" 250 ", "1000 "),
        ("   1 s  2026-11-21 03:36:15", "  2.5 min  2026-12-01 13:00:00"),
        ("0.125", "0.1250001"),
    ],
    ids=["rows", "more", "unfinished", "step", "times", "rounding"],
)
def test_what_differs_each_time_is_no_change(old, new):
    assert old in SHOWN
    assert transcript.changes(SHOWN, SHOWN.replace(old, new)) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("  50  ", "  51  "),
        ("  50  1.2 kB", "  50  1.3 kB"),
        ("03:36:15  full", "03:36:15  weights"),
        ("03:36:14  full\n", "03:36:14  full\nno lock\n"),
        ("loss", "mae"),
    ],
    ids=["step", "size", "word", "line", "name"],
)
def test_anything_else_is_a_change(old, new):
    assert old in SHOWN
    changes = transcript.changes(SHOWN, SHOWN.replace(old, new))
    assert "--- the page shows" in changes and "\n+" in changes


def test_what_commands_print_takes_the_place_of_what_the_page_shows(tmp_path):
    page = (
        "<!-- file: a.txt -->\n```text\none\n```\n\n```console\n$ cat a.txt\n$ A=two\n$ echo $A; ls\nold\n```\n\n"
        "```console\n$ sleep 60 &\n[1] 1\n$ kill -KILL %1; wait\n$ echo {1..31}\n```\n"
    )
    now = transcript.run(page, tmp_path)
    assert transcript.alike(now) == (
        "<!-- file: a.txt -->\n```text\none\n```\n\n```console\n$ cat a.txt\none\n$ A=two\n$ echo $A; ls\ntwo\na.txt\n```\n\n"
        "```console\n$ sleep 60 &\n[1] PID\n$ kill -KILL %1; wait\n[1]+  Killed  sleep 60\n"
        "$ echo {1..31}\n1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30\n 31\n```\n"
    )


# The terminal


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("a\r\nb", "a\nb"),
        ("abc\rx", "xbc"),
        ("abc\r\x1b[Kx", "x"),
        ("one\r\ntwo\r\x1b[2K\x1b[1A\x1b[2Kthree", "three"),
        ("\x1b[?25l\x1b[1;32mok\x1b[0m\x1b[?25h", "ok"),
        ("1234567890a", "1234567890\na"),
        ("1234567890\r\na", "1234567890\na"),
        ("ab\b-", "a-"),
        ("ab  \r\n\r\n", "ab"),
    ],
)
def test_a_screen_shows_what_is_left_of_what_was_sent(sent, shown):
    screen = terminal.Screen(columns=10)
    screen.feed(sent)
    assert screen.text() == shown


@pytest.mark.parametrize("sent", ["\a", "\x1b[5J"])
def test_a_screen_refuses_what_it_does_not_know(sent):
    with pytest.raises(AssertionError, match="does not know"):
        terminal.Screen().feed(sent)


def test_a_shell_has_a_terminal_of_80_columns(tmp_path):
    with terminal.shell(tmp_path, jobs.environment()) as shell:
        assert shell.run("stty size; pwd; test -t 1 -a -t 2 && echo both") == f"24 80\n{tmp_path}\nboth"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        page = transcript.run(PAGE.read_text(), Path(folder))
    PAGE.write_text(page)
    for name, commands in DRAWN.items():
        terminal.draw(picture(page, commands), FIGURES / name)
    print(f"{PAGE.relative_to(ROOT)} and docs/figures/{', '.join(DRAWN)} are written anew: look at all of them")
