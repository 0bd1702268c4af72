"""Lets a process take so much more memory for data than it has, and no more. What takes more has a MemoryError."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator


@contextlib.contextmanager
def data_limit(room: int) -> Iterator[None]:
    """Within the block the process may take ``room`` bytes more: for data of its own (RLIMIT_DATA), stacks of threads among them, and not
    for files that are mapped."""
    with open("/proc/self/status") as file:
        data = next(int(line.split()[1]) for line in file if line.startswith("VmData")) << 10
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (data + room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
