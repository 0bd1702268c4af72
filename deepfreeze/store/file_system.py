"""The file system that a run is on: as a name that stays the same from job to job, and whether a directory is the place of one."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")  # proc(5)
_PLANNED = Path("/etc/fstab")  # fstab(5)
_ESCAPE = re.compile(r"\\([0-7]{3})")  # of a blank in a path, for example


def named(path: str | os.PathLike[str]) -> str:
    """The file system of a directory: its type and where it is mounted ("lustre at /scratch"). "unknown" where the system does not tell.
    Raises nothing."""
    try:
        real = os.path.realpath(path)
        found = [_mount(line) for line in _lines(_MOUNTS)]
    except OSError:
        return "unknown"
    above = [one for one in found if one is not None and _is_below(real, one[0])]
    if not above:
        return "unknown"
    # Of mounts at one place the last one hides the others.
    point, kind = max(enumerate(above), key=lambda one: (len(one[1][0]), one[0]))[1]
    return f"{kind} at {point}".encode("unicode_escape").decode()  # plan.json takes printable text alone


def is_mount_point(folder: str | os.PathLike[str]) -> bool:
    """Whether a file system is mounted at ``folder``, or is to be mounted there by the system's table, mounted or not. Raises nothing."""
    real, points = os.path.realpath(folder), set()
    with contextlib.suppress(OSError):
        points = {one[0] for line in _lines(_MOUNTS) if (one := _mount(line)) is not None}
    with contextlib.suppress(OSError):
        rows = (line.split() for line in _lines(_PLANNED) if not line.lstrip().startswith("#"))
        points |= {_unescaped(row[1]).rstrip("/") for row in rows if len(row) > 1}
    return real in points


def _lines(file: Path) -> list[str]:
    return file.read_text(errors="replace").splitlines()


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda code: chr(int(code[1], 8)), text)


def _mount(line: str) -> tuple[str, str] | None:
    """The mount point of a line, and the type of the file system there."""
    before, _, after = line.partition(" - ")
    fields, kinds = before.split(" "), after.split(" ")
    if len(fields) < 5 or not kinds[0]:
        return None
    return _unescaped(fields[4]), kinds[0]


def _is_below(path: str, point: str) -> bool:
    return point == "/" or path == point or path.startswith(f"{point}/")
