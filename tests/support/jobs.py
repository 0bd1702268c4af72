"""Starts real jobs: one process, or several ranks under mpirun or horovodrun."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
JOBS = ROOT / "tests" / "jobs"
# A bound on every job: far above what any takes, so that a hang fails instead of hanging the tests.
LIMIT_S = 400


def environment(**extra: str) -> dict[str, str]:
    """The environment of a test job: this interpreter's programs first, one thread per TensorFlow pool, little noise."""
    env = dict(os.environ)
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", "")])
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), env.get("PYTHONPATH")]))
    env.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1", PYTHONUNBUFFERED="1", PYTHONWARNINGS="ignore")
    env.update(OMP_NUM_THREADS="1", TF_NUM_INTEROP_THREADS="2", TF_NUM_INTRAOP_THREADS="1")
    if os.getuid() == 0:
        env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    env.update(extra)
    return env


def command(script: str, *args: object, ranks: int = 0, launcher: str = "mpirun") -> list[str]:
    """The command line: alone (``ranks=0``), or under ``mpirun`` or ``horovodrun``."""
    path = Path(script)
    own = [sys.executable, str(path if path.is_absolute() else JOBS / script), *map(str, args)]
    if not ranks:
        return own
    if launcher == "mpirun":
        return ["mpirun", "--oversubscribe", "-np", str(ranks), *own]
    return ["horovodrun", "-np", str(ranks), "-H", f"localhost:{ranks}", *own]


def start(script: str, *args: object, ranks: int = 0, launcher: str = "mpirun", **env: str) -> subprocess.Popen:
    """Starts a job in a process group of its own."""
    return subprocess.Popen(
        command(script, *args, ranks=ranks, launcher=launcher),
        env=environment(**env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def run(script: str, *args: object, ranks: int = 0, launcher: str = "mpirun", **env: str) -> str:
    """Runs a job to its end and returns its output; fails with it if the job failed."""
    process = start(script, *args, ranks=ranks, launcher=launcher, **env)
    try:
        output, _ = process.communicate(timeout=LIMIT_S)
    finally:
        kill(process)
    assert process.returncode == 0, f"{script} {args} ended with {process.returncode}:\n{output[-4000:]}"
    return output


def kill(process: subprocess.Popen) -> None:
    """SIGKILLs a job and all its ranks."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def has(program: str) -> bool:
    """Whether a launcher is there."""
    return shutil.which(program, path=environment()["PATH"]) is not None
