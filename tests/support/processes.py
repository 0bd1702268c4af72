"""Starts the tests' child processes so that none outlives its test. A child is killed when the process that started it ends. At the end
of a child all its descendants are killed too, even if a launcher has put them into other process groups and sessions."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# A bound on every child, far above what any takes and below the bound on a test: who hangs is named, with what it printed.
LIMIT_S = 180
MARK = "DEEPFREEZE_TEST_FAMILY"  # a variable that a child and all its descendants have
CHILD = str(Path(__file__).with_name("child.py"))


def wrapped(command: Sequence[object], parent: int = 0, output: object = "") -> list[str | bytes]:
    """The command line that runs a command by tests/support/child.py, so that it dies with its parent."""
    own = [part if isinstance(part, bytes) else str(part) for part in command]
    return [sys.executable, "-S", "-I", CHILD, str(parent), str(output), *own]


@contextlib.contextmanager
def child(command: Sequence[object], env: dict[str, str] | None = None, **options: Any) -> Iterator[subprocess.Popen]:
    """``subprocess.Popen`` in a process group of its own. At the end of the block the process and all its descendants are killed."""
    mark = uuid.uuid4().hex
    # Open MPI keeps a folder ompi.PID per job. A killed job leaves it, and a later job of the same PID would not start.
    with tempfile.TemporaryDirectory(prefix="deepfreeze-test-", ignore_cleanup_errors=True) as sessions:
        own = {**(os.environ if env is None else env), MARK: mark, "PRTE_MCA_prte_tmpdir_base": sessions}
        process = subprocess.Popen(wrapped(command, os.getpid()), env=own, start_new_session=True, **options)
        try:
            yield process
        finally:
            _kill(process, mark)
            for pipe in (process.stdin, process.stdout, process.stderr):
                with contextlib.suppress(OSError):  # what the dead can't be told any more
                    if pipe is not None:
                        pipe.close()


def lives(pid: int) -> bool:
    """Whether a process runs. A zombie, whose parent has yet to hear of its end, does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def run(
    command: Sequence[object],
    timeout: float = LIMIT_S,
    input: Any = None,
    capture_output: bool = False,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess:
    """``subprocess.run`` with a time limit in seconds; no descendant of the process is left afterwards."""
    if capture_output:
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if input is not None:
        options["stdin"] = subprocess.PIPE
    with child(command, **options) as process:
        output, errors = process.communicate(input, timeout)
    done = subprocess.CompletedProcess(command, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done


def _kill(process: subprocess.Popen, mark: str) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    while pids := _family(mark):  # again: who was just being started when the others were killed
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _family(mark: str) -> list[int]:
    """The ids of living processes that have this mark in their environment. A process that is in the middle of an ``exec`` shows no
    environment for a moment, so this looks again then."""
    entry = f"{MARK}={mark}".encode()
    for _ in range(50):
        found, unsure = [], False
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):  # it ended, is the kernel's, or is somebody else's
                os.readlink(f"/proc/{name}/exe")
                environment = Path(f"/proc/{name}/environ").read_bytes()
                unsure = unsure or not environment
                if entry in environment.split(b"\0"):
                    found.append(int(name))
        if found or not unsure:
            break
        time.sleep(0.01)
    return found
