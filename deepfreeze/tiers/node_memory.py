"""How much memory this process may still take: what the node has, and what the limits over the process leave.

A batch system or a container gives a job its memory by a control group: of version 2, of version 1, or of both side by side,
where one of them has the memory. What lies in memory-backed files counts, and ends the job when it is too much. Every function
takes the root of the file system, so that a test can make one up.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_MEMORY_BACKED = ("tmpfs", "ramfs")


@dataclass(frozen=True)
class _Names:
    """What the files of a control group are called in one version of them."""

    limit: str
    usage: str
    cache: str  # in memory.stat: of the usage, what the kernel takes back before it ends anybody


_VERSION_1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _Names("memory.max", "memory.current", "inactive_file")


@dataclass(frozen=True)
class _Mount:
    device: str
    root: PurePosixPath  # the part of the file system that is mounted
    point: PurePosixPath
    kind: str
    options: tuple[str, ...]


def available(root: Path = Path("/")) -> int:
    """Bytes. 0 where the system does not say."""
    return max(0, min([_node(root), *_left_by_limits(root)]))


def is_memory(folder: Path, root: Path = Path("/")) -> bool:
    """Whether what is in a folder is memory."""
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    return any(mount.device == number and mount.kind in _MEMORY_BACKED for mount in _mounts(root))


def _node(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _left_by_limits(root: Path) -> Iterator[int]:
    """Of each limit over this process: what it leaves."""
    groups = [line.split(":", 2) for line in _lines(root / "proc/self/cgroup") if line.count(":") >= 2]
    for mount in _mounts(root):
        for number, controllers, path in groups:
            if mount.kind == "cgroup2" and (number, controllers) == ("0", ""):
                files = _VERSION_2
            elif mount.kind == "cgroup" and "memory" in mount.options and "memory" in controllers.split(","):
                files = _VERSION_1
            else:
                continue
            for folder in _with_ancestors(mount, PurePosixPath(path)):
                left = _left(root / folder.relative_to("/"), files)
                if left is not None:
                    yield left


def _with_ancestors(mount: _Mount, group: PurePosixPath) -> list[PurePosixPath]:
    """Folders of a process's control group and all above it, as far as they are mounted here."""
    # A container may see its own group as "/", and one outside of what is mounted as "/../other".
    if ".." in group.parts or not group.is_relative_to(mount.root):
        return [mount.point]
    below = group.relative_to(mount.root)
    return [mount.point / part for part in (below, *below.parents)]


def _left(folder: Path, files: _Names) -> int | None:
    """What one control group leaves; None if it has no limit."""
    limit, usage = _number(folder / files.limit), _number(folder / files.usage)
    if limit is None or usage is None:
        return None
    return limit - max(0, usage - _cache(folder / "memory.stat", files.cache))


def _cache(file: Path, name: str) -> int:
    values = (line.split() for line in _lines(file))
    return next((int(value[1]) for value in values if len(value) == 2 and value[0] == name), 0)


def _number(file: Path) -> int | None:
    """None for "max", and where there is no such file: the topmost group of version 2 has none."""
    lines = _lines(file)
    return int(lines[0]) if len(lines) == 1 and lines[0].isdigit() else None


def _mounts(root: Path) -> list[_Mount]:
    """What is mounted, as this process sees it (proc_pid_mountinfo(5))."""
    mounts = []
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        first, last = before.split(" "), after.split(" ")
        if len(first) >= 6 and len(last) >= 3:
            part, point = (PurePosixPath(_unescaped(text)) for text in first[3:5])
            mounts.append(_Mount(first[2], part, point, last[0], tuple(last[2].split(","))))
    return mounts


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _lines(file: Path) -> list[str]:
    """None of them where the file can't be read: another kernel may lack it."""
    with contextlib.suppress(OSError):
        return file.read_text(errors="surrogateescape").splitlines()
    return []
