"""What processes and directories hold, once a second, while a soak runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

# name: unit. A value is the sum over all ranks, or over all files of a directory.
QUANTITIES = {
    "memory": "MiB, resident",
    "shared memory": "MiB, each rank's share",
    "descriptors": "",
    "threads": "",
    "run": "MiB",
    "run files": "",
    "local tier": "MiB",
    "local tier files": "",
}
_MIB = 1 << 20


class Samples:
    """``values`` of each quantity at the same ``seconds``."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.values: dict[str, list[float]] = {name: [] for name in QUANTITIES}


class Sampler(threading.Thread):
    """Samples every second until ``stop``, and when told to ``rest``; ``each`` is called every second, and what it raises ends up in
    ``failure``."""

    def __init__(self, pids: Sequence[int], run: Path, local: Sequence[Path], each: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._pids, self._run, self._local, self._each = list(pids), run, list(local), each
        self._over, self._begun = threading.Event(), time.monotonic()
        self.running, self.resting = Samples(), Samples()
        self.failure: BaseException | None = None

    def run(self) -> None:
        while not self._over.wait(1 - (time.monotonic() - self._begun) % 1):
            self._take(self.running)
            try:
                self._each()
            except BaseException as error:
                self.failure = error
                return

    def rest(self) -> None:
        """A sample between two jobs: nothing is under way, whose amount would depend on how busy the machine is."""
        self._take(self.resting)

    def stop(self) -> None:
        self._over.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def _take(self, samples: Samples) -> None:
        now, found = time.monotonic() - self._begun, self._sample()
        for name, value in found.items():
            samples.values[name].append(value)
        samples.seconds.append(now)

    def _sample(self) -> dict[str, float]:
        memory = [_memory(pid) for pid in self._pids]
        run, local = _tree(self._run), [_tree(path) for path in self._local]
        return {
            "memory": sum(rss for rss, _ in memory) / _MIB,
            "shared memory": sum(shared for _, shared in memory) / _MIB,
            "descriptors": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in self._pids),
            "threads": sum(len(os.listdir(f"/proc/{pid}/task")) for pid in self._pids),
            "run": run[0] / _MIB,
            "run files": run[1],
            "local tier": sum(nbytes for nbytes, _ in local) / _MIB,
            "local tier files": sum(files for _, files in local),
        }


def _memory(pid: int) -> tuple[int, int]:
    """(resident, proportional share of shared memory) in bytes."""
    found = {"Rss": 0, "Pss_Shmem": 0}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, value = line.partition(":")
        if name in found:
            found[name] = int(value.split()[0]) * 1024
    return found["Rss"], found["Pss_Shmem"]


def _tree(root: Path) -> tuple[int, int]:
    """(bytes on the device, files) below a directory; what is deleted meanwhile does not count."""
    nbytes = files = 0
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                status = os.lstat(os.path.join(folder, name))
            except FileNotFoundError:
                continue
            nbytes += 512 * status.st_blocks
            files += 1
    return nbytes, files
