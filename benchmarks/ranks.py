"""Rank processes without TensorFlow: each drives the engine with shards of given sizes, in step with the others.

    with Ranks(world=2, memory=64 << 20) as ranks:
        job = ranks.open([[(nbytes, file_offset), ...], ...], folder, local)   # one list of regions for each rank
        job.save().committed                                                   # one checkpoint; what became of it

Several jobs may be open at once in the same processes, so that approaches can be measured in turn. All take their bytes from
the same touched, page-aligned memory: it never changes, which is all the engine asks of it.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = 4096
END = 30  # seconds that a rank may take to end

# What a metadata server sees, by kind; the names that system calls have had.
OPERATIONS = {
    "open": ("open", "openat", "openat2", "creat"),
    "rename": ("rename", "renameat", "renameat2"),
    "sync": ("fsync", "fdatasync"),
    "mkdir": ("mkdir", "mkdirat"),
    "unlink": ("unlink", "unlinkat", "rmdir"),
    "readdir": ("getdents", "getdents64"),
}
_KIND = {call: kind for kind, calls in OPERATIONS.items() for call in calls}

Regions = Sequence[tuple[int, int]]  # (nbytes, file offset), sorted by offset


def footprint(regions: Regions) -> int:
    """Bytes of memory that regions take when each begins on a page of its own."""
    return sum(-(-nbytes // PAGE) * PAGE for nbytes, _ in regions)


@dataclass(frozen=True)
class Saved:
    """One checkpoint, one entry for each rank: seconds since its submit, CPU seconds of its process, its bytes."""

    submit: list[float]
    local: list[float]  # -1 where the shard went past the local tier
    written: list[float]
    external: list[float]  # other ranks than 0 notice a commit only when they look
    cpu: list[float]
    calls: list[int]  # read and write calls
    nbytes: list[int]

    @property
    def committed(self) -> float:
        """Seconds until the checkpoint counted: rank 0 commits it."""
        return self.external[0]

    @property
    def on_local(self) -> list[float]:
        """When the last shard was on the local tier; empty if one went past it."""
        return [max(self.local)] if min(self.local) >= 0 else []

    @property
    def cpu_per_gb(self) -> float:
        """CPU seconds of all ranks for each GB of the checkpoint, all tiers together."""
        return sum(self.cpu) / (sum(self.nbytes) / 1e9)


@dataclass(frozen=True)
class Burst:
    """Checkpoints submitted back to back, one entry for each rank: seconds in all, each submit's seconds, CPU seconds."""

    seconds: list[float]
    submits: list[list[float]]
    cpu: list[float]
    nbytes: list[int]

    @property
    def throughput(self) -> float:
        """GB/s from the first submit until everything is committed."""
        return sum(self.nbytes) / 1e9 / max(self.seconds)

    @property
    def blocked(self) -> float:
        """Mean seconds that a submit held its caller up, on the rank that waited longest."""
        return max(sum(waits) / len(waits) for waits in self.submits)

    @property
    def cpu_per_gb(self) -> float:
        """As of ``Saved``."""
        return sum(self.cpu) / (sum(self.nbytes) / 1e9)


class Job:
    """One run of all ranks; made by ``Ranks.open``. Steps count up by themselves."""

    def __init__(self, ranks: Ranks, number: int, run: Path) -> None:
        self._ranks, self._number, self.run, self._step = ranks, number, run, 0

    def save(self) -> Saved:
        """One checkpoint, from submit until nothing is left to do."""
        return Saved(**self._gather("save", 1))

    def burst(self, count: int) -> Burst:
        """``count`` checkpoints, each submitted as soon as the engine takes it."""
        return Burst(**self._gather("burst", count))

    def pace(self, count: int, filling: int, most: int) -> tuple[float, int]:
        """Seconds of ``count`` commits after ``filling`` ones, with ``most`` checkpoints on their way
        (``benchmarks.concurrency_engine``)."""
        first, self._step = self._step + 1, self._step + filling + count + most
        ((seconds, left),) = self._ranks.ask(
            "pace", job=self._number, step=first, count=count, filling=filling, most=most
        )
        return seconds, left

    def operations(self, count: int) -> list[Counter]:
        """Metadata operations of each rank on the run directory during ``count`` checkpoints; the ranks must be traced."""
        before = [self._ranks.trace(rank) for rank in range(self._ranks.world)]
        for _ in range(count):
            self.save()
        return [
            _count(self._ranks.trace(rank)[len(text) :], str(self.run.resolve())) for rank, text in enumerate(before)
        ]

    def close(self) -> None:
        """Ends the engines and removes what they saved."""
        self._ranks.ask("close", job=self._number)
        shutil.rmtree(self.run)

    def _gather(self, what: str, count: int) -> dict[str, list]:
        first, self._step = self._step + 1, self._step + count
        answers = self._ranks.ask(what, job=self._number, step=first, count=count)
        return {key: [answer[key] for answer in answers] for key in answers[0]}


class Ranks:
    """The processes of ``world`` ranks, each with ``memory`` bytes to take shards from. A context manager. ``program``: the module that
    each process runs."""

    def __init__(self, world: int, memory: int, traced: bool = False, program: str = "scaling_rank") -> None:
        self.world = world
        self._numbers = itertools.count()
        self._logs = Path(tempfile.mkdtemp(prefix="deepfreeze-ranks-"))
        self._processes: list[subprocess.Popen] = []
        try:
            for rank in range(world):
                command = [sys.executable, "-m", f"benchmarks.{program}", "--memory", str(memory)]
                if traced:
                    command = [*_strace(self._logs / f"trace-{rank}"), *command]
                with open(self._logs / f"errors-{rank}", "wb") as errors:
                    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": errors, "text": True}
                    self._processes.append(subprocess.Popen(command, cwd=ROOT, **pipes))
            self._answers()  # each says when its memory is there
        except BaseException:
            self.end()
            raise

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def open(self, shards: Sequence[Regions], folder: Path, local: Path | None, **options: Any) -> Job:
        """Opens an engine on each rank, over a new run directory below ``folder``. options: as of ``veloc_bindings.EmbeddedEngine``."""
        if len(shards) != self.world:
            raise ValueError(f"shards of {len(shards)} ranks for {self.world} processes")
        number = next(self._numbers)
        run = Path(tempfile.mkdtemp(dir=folder, prefix="run-"))
        common = {
            "run_dir": str(run.resolve()),
            "local_dir": str(local) if local else None,
            "run_id": os.urandom(16).hex(),
            "file_size": sum(nbytes for regions in shards for nbytes, _ in regions),
            "world": self.world,
            **options,
        }
        each = [{"regions": list(regions), "options": {**common, "rank": rank}} for rank, regions in enumerate(shards)]
        self._send([["open", {"job": number, **own}] for own in each])
        self._answers()
        return Job(self, number, run)

    def ask(self, name: str, **arguments: Any) -> list[Any]:
        """Every rank's answer to the same command; all do it at once."""
        self._send([[name, arguments]] * self.world)
        return self._answers()

    def each(self, name: str, arguments: Sequence[dict[str, Any] | None]) -> list[Any]:
        """The answers of those ranks that have arguments, in order of rank. Each is asked when the one before it has answered."""
        found = []
        for rank, (process, own) in enumerate(zip(self._processes, arguments, strict=True)):
            if own is not None:
                self._tell(process, [name, own])
                found.append(self._value(rank, process.stdout.readline()))
        return found

    def trace(self, rank: int) -> str:
        """The system calls that a traced rank has made so far."""
        return (self._logs / f"trace-{rank}").read_text(errors="replace")

    def end(self) -> None:
        """Lets the ranks finish; may be called twice."""
        for process in self._processes:
            with suppress(BrokenPipeError):
                process.stdin.close()
        for process in self._processes:
            try:
                process.wait(END)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        self._processes = []
        shutil.rmtree(self._logs, ignore_errors=True)

    def _send(self, lines: list) -> None:
        for process, line in zip(self._processes, lines, strict=True):
            self._tell(process, line)

    def _answers(self) -> list[Any]:
        lines = [process.stdout.readline() for process in self._processes]
        return [self._value(rank, line) for rank, line in enumerate(lines)]

    @staticmethod
    def _tell(process: subprocess.Popen, line: list) -> None:
        with suppress(BrokenPipeError):  # its answer will tell
            process.stdin.write(json.dumps(line) + "\n")
            process.stdin.flush()

    def _value(self, rank: int, line: str) -> Any:
        answer = json.loads(line) if line else {"error": "ended"}
        if "error" in answer:
            errors = (self._logs / f"errors-{rank}").read_text(errors="replace")[-3000:]
            raise SystemExit(f"rank process {rank} of {self.world}: {answer['error']}\n{errors}".rstrip())
        return answer["value"]


@contextmanager
def scratch(folder: Path | None) -> Iterator[tuple[Path, Path]]:
    """A directory on the disk to measure and one for the local tier, in memory where there is such a place; both removed."""
    disk = tempfile.mkdtemp(dir=folder, prefix="deepfreeze-")
    shm = Path("/dev/shm")
    local = tempfile.mkdtemp(dir=shm if shm.is_dir() and os.access(shm, os.W_OK) else disk, prefix="deepfreeze-")
    try:
        yield Path(disk).resolve(), Path(local)
    finally:
        shutil.rmtree(local, ignore_errors=True)
        shutil.rmtree(disk, ignore_errors=True)


def tracing() -> str:
    """Why system calls can't be counted here; "" if they can."""
    if not shutil.which("strace"):
        return "strace is not installed"
    done = subprocess.run([*_strace(Path(os.devnull)), "true"], capture_output=True, text=True)
    return f"strace fails here: {done.stderr.strip()[-200:]}" if done.returncode else ""


def _strace(out: Path) -> list[str]:
    # "?": a call that this processor's system doesn't have is no error. -y: descriptors with their paths.
    calls = ",".join(f"?{call}" for call in _KIND)
    return ["strace", "-f", "-qq", "-y", "--seccomp-bpf", "-e", "signal=none", "-e", f"trace={calls}", "-o", str(out)]


def _count(trace: str, path: str) -> Counter:
    """The calls by kind in a piece of trace that name something in ``path``. A call cut in two lines counts once."""
    found = re.findall(r"^\d+ +(\w+)\((.*)$", trace, re.MULTILINE)
    return Counter(_KIND[call] for call, rest in found if path in rest and call in _KIND)
