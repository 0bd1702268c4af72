"""Starts a training of N ranks in processes of its own, and gathers what each rank measured.

The parent calls ``gather("overhead_rank", params, ranks, folder)``; that module, run as ``python -m benchmarks.overhead_rank``,
ends with ``jobs.serve(measure)``, and ``measure(params)`` returns something JSON can hold.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.report import ROOT, say

_MARK = "progress: "
_TAIL = 40  # lines of a failed job's output


def gather(module: str, params: dict[str, Any], ranks: int, folder: Path, timeout: float = 600.0) -> list[Any]:
    """Runs ``benchmarks.MODULE`` on ``ranks`` ranks; what ``measure`` returned on each, in order of rank."""
    with tempfile.TemporaryDirectory(dir=folder, prefix="job-") as box:
        Path(box, "params.json").write_text(json.dumps(params))
        own = [sys.executable, "-m", f"benchmarks.{module}", "--rank-main", box]
        command = own if ranks == 1 else [_mpirun(), "--oversubscribe", "-np", str(ranks), *own]
        begun = time.monotonic()
        code, tail = _run(command, timeout)
        results = [Path(box, f"rank-{rank}.json") for rank in range(ranks)]
        if code or not all(path.exists() for path in results):
            why = f"not done after {timeout:g} s" if time.monotonic() - begun > timeout else f"exit code {code}"
            raise SystemExit(f"{module} on {ranks} ranks failed ({why}):\n" + "\n".join(tail))
        return [json.loads(path.read_text()) for path in results]


def _mpirun() -> str:
    """The one that Horovod was built with lies beside the interpreter; it need not be on PATH."""
    beside = Path(sys.executable).with_name("mpirun")
    return str(beside) if beside.exists() else "mpirun"


def serve(measure: Callable[[dict[str, Any]], Any]) -> None:
    """The whole of a rank's process: takes the parameters, measures, leaves the result. Initialises Horovod."""
    parser = argparse.ArgumentParser(description="One rank of a benchmark's job; the benchmark starts it.")
    parser.add_argument("--rank-main", type=Path, required=True, metavar="FOLDER", help="with params.json in it")
    folder = parser.parse_args().rank_main
    import horovod.tensorflow as hvd

    hvd.init()
    result = measure(json.loads((folder / "params.json").read_text()))
    part = folder / f"rank-{hvd.rank()}.part"
    part.write_text(json.dumps(result))
    part.rename(folder / f"rank-{hvd.rank()}.json")


def progress(text: str) -> None:
    """In a rank: a line that the parent shows."""
    print(_MARK + text, flush=True)


@contextlib.contextmanager
def places(folder: Path | None) -> Iterator[tuple[Path, Path]]:
    """A directory on the disk to measure and one in memory, gone afterwards with all that is in them."""
    disk = Path(tempfile.mkdtemp(dir=folder, prefix="deepfreeze-"))
    memory = Path(tempfile.mkdtemp(dir="/dev/shm", prefix="deepfreeze-"))
    try:
        yield disk, memory
    finally:
        for place in (disk, memory):
            shutil.rmtree(place, ignore_errors=True)


def empty(folder: Path, name: str) -> Path:
    """An empty directory of that name, made anew."""
    path = folder / name
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    return path


def _run(command: list[str], timeout: float) -> tuple[int, list[str]]:
    """The exit code, and the end of the output."""
    env = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", PYTHONWARNINGS="ignore", PYTHONUNBUFFERED="1")
    if os.getuid() == 0:
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    tail: collections.deque[str] = collections.deque(maxlen=_TAIL)
    # A session of its own, so that all of its processes can be ended together.
    job = subprocess.Popen(
        command,
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    late = threading.Timer(timeout, _kill, (job,))
    late.start()
    try:
        assert job.stdout is not None
        for line in job.stdout:
            if line.startswith(_MARK):
                say("  " + line.removeprefix(_MARK).rstrip())
            else:
                tail.append(line.rstrip())
        return job.wait(), list(tail)
    finally:
        late.cancel()
        _kill(job)


def _kill(job: subprocess.Popen) -> None:
    """``mpirun`` ends its ranks when it is asked to; what is left after that is killed."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if job.poll() is None:
            os.killpg(job.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                job.wait(10)
