"""Starts real jobs: one process, or several ranks under mpirun or horovodrun."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.support import processes

ROOT = Path(__file__).resolve().parents[2]
JOBS = ROOT / "tests" / "jobs"
LIMIT_S = processes.LIMIT_S
TAIL = 3000  # characters


def environment(**extra: str) -> dict[str, str]:
    """The environment variables of a test job: this interpreter's programs come first on PATH, TensorFlow has few threads and logs
    little."""
    env = dict(os.environ)
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))
    env.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1", PYTHONUNBUFFERED="1", PYTHONWARNINGS="ignore")
    env.update(OMP_NUM_THREADS="1", TF_NUM_INTEROP_THREADS="2", TF_NUM_INTRAOP_THREADS="1")
    if os.getuid() == 0:
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    env.update(extra)
    return env


def command(
    script: object, *args: object, ranks: int = 0, launcher: str = "mpirun", output: object = ""
) -> list[str | bytes]:
    """The command line of a program in tests/jobs (or of an absolute path): alone (``ranks=0``), or under ``mpirun`` or
    ``horovodrun``. Rank R then prints to the file rank-R in the folder ``output``."""
    path = Path(str(script))
    own = [sys.executable, str(path if path.is_absolute() else JOBS / path), *map(str, args)]
    if not ranks:
        return own
    own = processes.wrapped(own, output=output)
    if launcher == "mpirun":
        return ["mpirun", "--oversubscribe", "-np", str(ranks), *own]
    return ["horovodrun", "-np", str(ranks), "-H", f"localhost:{ranks}", *own]


class Job:
    """A running or ended job; made by ``job``."""

    def __init__(self, name: str, process: subprocess.Popen, folder: Path, ranks: int) -> None:
        self.name, self.process, self.ranks, self._folder = name, process, ranks, folder

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""
        return self.process.poll()

    def wait(self, timeout: float = LIMIT_S) -> int:
        """Waits for its end, at most ``timeout`` seconds; returns its exit status."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.process.wait(timeout)
        raise AssertionError(f"{self.name} ran for more than {timeout} s\n{self.tails()}")

    def until(self, happened: Callable[[], object]) -> None:
        """Waits until ``happened()`` is true. Fails if the job ends before, or after LIMIT_S seconds."""
        end = time.monotonic() + LIMIT_S
        while not happened():
            assert self.poll() is None, f"{self.name} ended before that, with {self.poll()}\n{self.tails()}"
            assert time.monotonic() < end, f"{self.name} did not come to that in {LIMIT_S} s\n{self.tails()}"
            time.sleep(0.02)

    def pid(self, rank: int) -> int:
        """The process id of a rank; it must have been started."""
        return int((self._folder / f"rank-{rank}.pid").read_text())

    def output(self) -> str:
        """All that the job has printed so far: first the launcher, then one rank after the other."""
        return "".join(self._printed().values())

    def tails(self) -> str:
        """The last lines of each rank, by rank."""
        return "\n".join(f"--- {who} of {self.name}:\n{text[-TAIL:]}" for who, text in self._printed().items())

    def _printed(self) -> dict[str, str]:
        names = ["output", *(f"rank-{rank}" for rank in range(self.ranks))]
        files = {name: self._folder / name for name in names}
        return {name: file.read_text(errors="replace") for name, file in files.items() if file.exists()}


@contextlib.contextmanager
def job(script: object, *args: object, ranks: int = 0, launcher: str = "mpirun", **env: str) -> Iterator[Job]:
    """Starts a job. At the end of the block all its processes are killed; if the block fails, each rank's last lines are shown."""
    with tempfile.TemporaryDirectory(prefix="deepfreeze-job-") as name:
        folder = Path(name)
        line = command(script, *args, ranks=ranks, launcher=launcher, output=folder)
        with open(folder / "output", "ab") as output:
            options = {"stdin": subprocess.DEVNULL, "stdout": output, "stderr": subprocess.STDOUT}
            with processes.child(line, env=environment(**env), **options) as process:
                started = Job(" ".join(map(str, [script, *args])), process, folder, ranks)
                try:
                    yield started
                except BaseException:
                    print(started.tails())
                    raise


def run(script: object, *args: object, ranks: int = 0, launcher: str = "mpirun", **env: str) -> str:
    """Runs a job to its end and returns its output; fails if the job failed."""
    with job(script, *args, ranks=ranks, launcher=launcher, **env) as started:
        status = started.wait()
        assert status == 0, f"{started.name} ended with {status}\n{started.tails()}"
        return started.output()


def has(program: str) -> bool:
    """Whether this launcher is installed."""
    return shutil.which(program, path=environment()["PATH"]) is not None


def installed(package: str) -> bool:
    """Whether this Python has the package. ``importlib.util.find_spec`` does not tell: a folder of the tests may have the same name."""
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
