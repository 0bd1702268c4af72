"""A terminal of 80 columns: the text on its screen, an interactive shell that runs in it, and a picture of it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import struct
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import processes

COLUMNS, ROWS = 80, 24
_PROMPT = "<prompt of tests/support/terminal.py>"
_TOKEN = re.compile(
    r"\x1b\[(?P<values>[?\d;]*)(?P<command>[A-Za-z])|(?P<control>[\x00-\x1f\x7f])|(?P<letters>[^\x00-\x1f\x7f]+)"
)


class Screen:
    """The rows of text that a terminal shows after programs have written to it. The class understands the control characters of progress
    bars and of one-line pagers. Any other control character is an error that names it, because the text would be wrong."""

    def __init__(self, columns: int = COLUMNS) -> None:
        self._columns = columns
        self._rows: list[list[str]] = [[]]
        self._row = self._column = 0

    def feed(self, text: str) -> None:
        """Shows ``text``."""
        for token in _TOKEN.finditer(text):
            if token["letters"] is not None:
                for letter in token["letters"]:
                    self._put(letter)
            elif token["control"] is not None:
                self._control(token["control"])
            else:
                self._command(token["values"], token["command"])

    def text(self) -> str:
        """The rows, without the blanks at their ends and without empty rows at the end."""
        return "\n".join("".join(row).rstrip() for row in self._rows).rstrip("\n")

    def _put(self, letter: str) -> None:
        if self._column == self._columns:
            self._to(self._row + 1, 0)
        row = self._rows[self._row]
        row += " " * (self._column + 1 - len(row))
        row[self._column] = letter
        self._column += 1

    def _to(self, row: int, column: int) -> None:
        self._rows += [[] for _ in range(row + 1 - len(self._rows))]
        self._row, self._column = row, column

    def _control(self, control: str) -> None:
        if control == "\n":
            self._to(self._row + 1, self._column)
        elif control == "\r":
            self._column = 0
        elif control == "\b":
            self._column = max(0, self._column - 1)
        else:
            raise AssertionError(f"a control character that this terminal does not know: {control!r}")

    def _command(self, values: str, command: str) -> None:
        if command == "A":
            self._row = max(0, self._row - int(values or 1))
        elif command == "K" and values in ("", "0"):
            del self._rows[self._row][self._column :]
        elif command == "K" and values == "2":
            self._rows[self._row].clear()
        elif command not in "mhl":  # colours, and whether the cursor is seen
            raise AssertionError(f"a control sequence that this terminal does not know: ESC [ {values} {command}")


class Shell:
    """An interactive shell in a terminal; made by ``shell``."""

    def __init__(self, master: int) -> None:
        self._master = master
        self._until_prompt()

    def run(self, command: str) -> str:
        """Types a command of one line, waits for the next prompt, and returns what the screen shows in between."""
        os.write(self._master, command.encode() + b"\n")
        return self._until_prompt()

    def _until_prompt(self) -> str:
        end, received = time.monotonic() + processes.LIMIT_S, b""
        while not received.endswith(_PROMPT.encode()):
            ready, _, _ = select.select([self._master], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"no prompt in {processes.LIMIT_S} s; the terminal has received {received!r}"
            received += os.read(self._master, 1 << 16)
        screen = Screen()
        screen.feed(received.decode(errors="replace").removesuffix(_PROMPT))
        return screen.text()


@contextlib.contextmanager
def shell(folder: Path, env: dict[str, str]) -> Iterator[Shell]:
    """A bash as a user has it: with job control, in a terminal of 80 columns that does not repeat what is typed. ``folder``: its working
    directory. At the end of the block the shell and all that it has started are killed."""
    master, slave = os.openpty()
    try:
        settings = termios.tcgetattr(slave)
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, settings)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        # setsid makes the terminal the shell's own: without that there is no job control.
        words = ["setsid", "--ctty", "--wait", "bash", "--norc", "--noprofile", "--noediting", "-i"]
        own = {**env, "PS1": _PROMPT, "HISTFILE": "", "TERM": "xterm", "NO_COLOR": "1"}
        for name in ("COLUMNS", "LINES", "PROMPT_COMMAND"):
            own.pop(name, None)
        with processes.child(words, env=own, cwd=folder, stdin=slave, stdout=slave, stderr=slave):
            yield Shell(master)
    finally:
        os.close(slave)
        os.close(master)


# Colours of a picture: paper, ink, commands.
_PAPER, _INK, _TYPED = "#1c2128", "#d5d9de", "#8fd18f"
_FONT_PX, _MARGIN_PX, _SHADES = 26, 26, 5


def draw(text: str, file: Path) -> None:
    """Draws a terminal with ``text`` as a PNG file, which keeps the text too (``drawn`` returns it). Lines that begin with "$ " are what
    was typed."""
    import matplotlib
    from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    font = ImageFont.truetype(str(fonts / "DejaVuSansMono.ttf"), _FONT_PX)
    wide, high = font.getlength("m"), round(_FONT_PX * 1.3)
    lines = text.splitlines()
    size = (round(wide * COLUMNS) + 2 * _MARGIN_PX, high * len(lines) + 2 * _MARGIN_PX)
    image = Image.new("RGB", size, _PAPER)
    pen = ImageDraw.Draw(image)
    for number, line in enumerate(lines):
        ink = _TYPED if line.startswith("$ ") else _INK
        pen.text((_MARGIN_PX, _MARGIN_PX + number * high), line, fill=ink, font=font)
    kept = PngImagePlugin.PngInfo()
    kept.add_text("Description", text)
    image.quantize(palette=_palette(), dither=Image.Dither.NONE).save(file, optimize=True, pnginfo=kept)


def _palette() -> Any:
    """Both inks and their soft edges: few colours make the file small. Colours chosen by their number of points would leave out those of
    commands, which are few among many lines."""
    from PIL import Image, ImageColor

    paper, *inks = (ImageColor.getrgb(colour) for colour in (_PAPER, _INK, _TYPED))
    palette = Image.new("P", (1, 1))
    shades = [
        round(below + (above - below) * part / _SHADES)
        for ink in inks
        for part in range(_SHADES + 1)
        for below, above in zip(paper, ink, strict=True)
    ]
    palette.putpalette(shades + shades[:3] * (256 - len(shades) // 3))
    return palette


def drawn(file: Path) -> str:
    """The text of a picture that ``draw`` has made."""
    from PIL import Image

    with Image.open(file) as image:
        return image.text["Description"]
