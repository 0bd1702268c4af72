"""Samples how many bytes captures hold: of the engine's memory in this process, which the kernel knows by its flags, and of slots."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path


def held(slots: Path | None = None) -> int:
    """Resident bytes of this process that a forked child would not get (``MADV_DONTFORK``): the memory of captures and the writers'
    blocks. And the bytes of the files below ``slots``, which are memory; they count once, whether mapped or not. Memory may be given back
    and found while this function looks, so the slots are looked at before and after the rest, and the smaller number counts."""
    before = _slots(slots)
    found, size, in_slot = 0, 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        name, _, rest = line.partition(":")
        if name == "Rss":
            size = int(rest.split()[0]) * 1024
        elif name == "VmFlags":
            found += size if "dc" in rest.split() and not in_slot else 0
        elif "-" in name.split()[0]:
            in_slot = "/dev/shm/" in line
    return found + min(before, _slots(slots))


def _slots(folder: Path | None) -> int:
    found = 0
    for file in folder.rglob("*") if folder else ():
        with contextlib.suppress(OSError):  # a slot that is removed meanwhile
            found += file.stat().st_blocks * 512 if file.is_file() else 0
    return found


class Samples:
    """``most``: the greatest sample in bytes, here above the first one; ``number``: how many samples there are."""

    most = 0
    number = 0


@contextlib.contextmanager
def sampled(slots: Path | None = None) -> Iterator[Samples]:
    """Samples in a thread, as often as the machine allows, until the block ends."""
    samples, first = Samples(), held(slots)

    def sample() -> None:
        samples.most = max(samples.most, held(slots) - first)
        samples.number += 1

    with repeated(sample):
        yield samples


@contextlib.contextmanager
def repeated(look: Callable[[], None]) -> Iterator[None]:
    """Calls ``look`` in a thread again and again, until the block ends."""
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(0.0005):
            look()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
