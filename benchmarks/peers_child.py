"""One process of the comparison: measures the approaches of one environment, one round at a time, as the parent asks.

    python -m benchmarks.peers_child SIDE WORKLOAD FOLDER [--quick]

Writes a JSON line {"approaches": {name: {"fsync": "yes"}}, "versions": {...}} when ready; then, for each line on stdin (the name
of an approach), measures one round of it and writes its JSON line. Ends with stdin. Imports the side's libraries alone.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import shutil
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import workloads

# Side -> the module whose ``start(side, arrays, channel, folder)`` serves it. DeepFreeze's are the levels that it waits for.
SIDES = {
    "tensorflow": "benchmarks.peers_tensorflow",
    "others": "benchmarks.peers_others",
    "captured": "benchmarks.peers_ours",
    "local": "benchmarks.peers_ours",
    "external": "benchmarks.peers_ours",
}
# The update of every approach: weight -= RATE * gradient, in place, as SGD does it.
RATE = 1e-3
# Every so many elements one is compared after a restore: a prime, so that each page has its turn at another place.
_STRIDE = 1031
_QUICK_SIDE = 256


class Channel:
    """The lines between the two processes. What libraries print to stdout goes to stderr."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def say(self, message: Mapping[str, Any]) -> None:
        """Sends one message."""
        self._out.write(json.dumps(message) + "\n")
        self._out.flush()

    def hear(self) -> str:
        """The next request; "" at the end."""
        return sys.stdin.readline().strip()


class Peer(ABC):
    """One approach over tensors of its own."""

    name: str
    fsync: str  # whether it asks the disk for durability: "yes" or "no", as seen in its system calls
    background = False  # whether anything is left to do when ``save`` returns

    @abstractmethod
    def update(self) -> None:
        """Writes every tensor once, in place if its framework can; returns when that is done."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Starts a checkpoint in ``folder`` and returns when the tensors may be updated."""

    def wait(self) -> None:  # noqa: B027
        """Returns when the approach says that its checkpoint is done."""

    @abstractmethod
    def restore(self, folder: Path) -> None:
        """The checkpoint back into the state that is updated."""

    @abstractmethod
    def sample(self) -> list[np.ndarray]:
        """Some values of each tensor, taken without keeping hold of it."""


def thin(flat: Any) -> Any:
    """The elements of a flat tensor that are compared."""
    return flat[::_STRIDE]


def state(workload: str, quick: bool = False) -> dict[str, np.ndarray]:
    """The tensors to save. ``quick``: cut down to a few MB."""
    if not quick:
        return workloads.arrays(workload)
    rng = np.random.default_rng(0)
    return {
        name: rng.random([min(side, _QUICK_SIDE) for side in shape], np.dtype(dtype))
        for name, shape, dtype in workloads.tensors(workload)
    }


def measure_round(peer: Peer, folder: Path) -> dict[str, float]:
    """One checkpoint of ``peer`` in the new ``folder``, which is removed again; seconds and bytes."""
    peer.update()  # the first one after a restore may pay for it
    plain = [_timed(peer.update), _timed(peer.update)]
    before = peer.sample()
    folder.mkdir()
    gc.collect()
    begin = time.perf_counter()
    peer.save(folder)
    blocking = time.perf_counter() - begin
    update = _timed(peer.update)
    peer.wait()
    done = time.perf_counter() - begin if peer.background else blocking
    # Where the peer asked for durability itself, it has what it says it has; where not, that is added here.
    durable = done if peer.fsync == "yes" else done + _timed(lambda: _fsync_all(folder))
    nbytes = warm(folder)
    restore = _timed(lambda: peer.restore(folder))
    check(peer.name, before, peer.sample())
    shutil.rmtree(folder)
    extra = update - sum(plain) / 2
    return {
        "blocking": blocking,
        "extra": extra,
        "stall": blocking + extra,
        "done": done,
        "durable": durable,
        "bytes": nbytes,
        "restore": restore,
        "update": sum(plain) / 2,
    }


def check(name: str, saved: list[np.ndarray], restored: list[np.ndarray]) -> None:
    """Ends the process unless what was restored is what was saved: a figure of anything else would mean nothing."""
    for number, (before, after) in enumerate(zip(saved, restored, strict=True)):
        if not np.array_equal(before, after):
            raise SystemExit(f"{name}: tensor {number} restored is not as it was saved")


def warm(folder: Path) -> int:
    """Reads all files below ``folder`` into the page cache; how many bytes they hold."""
    buffer, total = bytearray(4 << 20), 0
    for path in _files(folder):
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
    return total


def _fsync_all(folder: Path) -> None:
    for path in [*_files(folder), *(path for path in folder.rglob("*") if path.is_dir()), folder]:
        fsync(path)


def fsync(path: Path) -> None:
    """Makes a file's bytes, or a directory's entries, durable."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def serve(peers: Mapping[str, Peer], versions: dict[str, str], channel: Channel, folder: Path) -> None:
    """Answers the parent's requests with rounds of these peers."""
    channel.say({"approaches": {name: {"fsync": peer.fsync} for name, peer in peers.items()}, "versions": versions})
    while name := channel.hear():
        channel.say(measure_round(peers[name], folder / "round"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("side", choices=SIDES)
    parser.add_argument("workload")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    channel = Channel()
    args.folder.mkdir()
    importlib.import_module(SIDES[args.side]).start(args.side, state(args.workload, args.quick), channel, args.folder)


if __name__ == "__main__":
    main()
