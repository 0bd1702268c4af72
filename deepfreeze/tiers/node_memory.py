"""How much memory this process may still take: the node's free memory, or less if a limit applies to the process.

A batch system or a container limits the memory of a job by a control group, of version 1 or 2; on some systems both versions are mounted,
and one of them limits the memory. The bytes of files in /dev/shm count as memory, and the kernel ends the job when it takes too much. The
parameter ``root`` of each function is the root of the file system, so that a test can make up /proc and /sys.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_MEMORY_BACKED = ("tmpfs", "ramfs")
_CONTROL_GROUPS = ("cgroup", "cgroup2")
_UNLIMITED = 1 << 60  # bytes: version 1 writes the greatest number of pages where there is no limit


@dataclass(frozen=True)
class _FileNames:
    """The names of a control group's files in one version of control groups."""

    limit: str
    usage: str
    cache: str  # the line of memory.stat with the part of the usage that the kernel takes back before it ends a process


_VERSION_1 = _FileNames("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = _FileNames("memory.max", "memory.current", "inactive_file")


@dataclass(frozen=True)
class _Mount:
    """A line of /proc/self/mountinfo."""

    device: str  # "major:minor"
    root: PurePosixPath  # the directory within the file system that is mounted
    point: PurePosixPath  # where it is mounted
    kind: str  # of file system: "tmpfs", "cgroup2"
    options: tuple[str, ...]


def available(root: Path = Path("/")) -> int:
    """Bytes of memory that this process may still take; 0 if the system does not tell."""
    return max(0, min([_free_on_node(root), *_left_by_limits(root)]))


def is_memory(folder: Path, root: Path = Path("/")) -> bool:
    """Whether the files in a folder are kept in memory."""
    device = os.stat(folder).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    return any(mount.device == number for mount in _mounts(root, _MEMORY_BACKED))


def _free_on_node(root: Path) -> int:
    for line in _lines(root / "proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _left_by_limits(root: Path) -> Iterator[int]:
    """For each memory limit that applies to this process: the bytes that may still be taken."""
    groups = [line.split(":", 2) for line in _lines(root / "proc/self/cgroup") if line.count(":") >= 2]
    for mount in _mounts(root, _CONTROL_GROUPS):
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
    """The folders of a process's control group and of all groups above it, as far as they are mounted here: each may have a limit."""
    # In a container the path of the group may lie outside of the mounted part ("/../other"). The mounted part is then its own group.
    if ".." in group.parts or not group.is_relative_to(mount.root):
        return [mount.point]
    below = group.relative_to(mount.root)
    return [mount.point / part for part in (below, *below.parents)]


def _left(folder: Path, files: _FileNames) -> int | None:
    """The bytes that may still be taken in one control group; None if it has no limit."""
    limit = _number(folder / files.limit)
    if limit is None or limit >= _UNLIMITED:
        return None
    usage = _number(folder / files.usage)
    if usage is None:
        return None
    return limit - max(0, usage - _cache(folder / "memory.stat", files.cache))


def _cache(file: Path, name: str) -> int:
    values = (line.split() for line in _lines(file))
    return next((int(value[1]) for value in values if len(value) == 2 and value[0] == name), 0)


def _number(file: Path) -> int | None:
    """The number in a control group's file. None if there is no limit ("max"), or no such file, as in the topmost group of version 2."""
    lines = _lines(file)
    return int(lines[0]) if len(lines) == 1 and lines[0].isdigit() else None


def _mounts(root: Path, kinds: tuple[str, ...]) -> list[_Mount]:
    """The mounts of these kinds that this process sees (proc_pid_mountinfo(5)). A node may have hundreds of others."""
    mounts = []
    for line in _lines(root / "proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        first, last = before.split(" "), after.split(" ")
        if len(first) >= 6 and len(last) >= 3 and last[0] in kinds:
            part, point = (PurePosixPath(_unescaped(text)) for text in first[3:5])
            mounts.append(_Mount(first[2], part, point, last[0], tuple(last[2].split(","))))
    return mounts


def _unescaped(text: str) -> str:
    """A path of mountinfo, in which a blank is ``\\040``."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _lines(file: Path) -> list[str]:
    """The lines of a file; [] if it can't be read, as on kernels that don't have it."""
    with contextlib.suppress(OSError):
        return file.read_text(errors="surrogateescape").splitlines()
    return []
