"""Makes .venv-peers, an optional environment with other checkpointing libraries, for benchmarks/peers.py. It is made once, like .venv."""

import fcntl
import hashlib
import shutil
import subprocess
import sys

from project import BUILD, ROOT, main, run_logged, say

LOCK = ROOT / "tools" / "peers.lock"
VENV = ROOT / ".venv-peers"
STAMP = VENV / ".packages"
ADVICE = "Is there a network, and 5 GB of free disk? Delete .venv-peers to begin anew."
# One line for each library that is measured, so that a half-made environment does not pass for a whole one.
PROBE = """
import jax, numpy
import orbax.checkpoint
import safetensors.torch
import torch.distributed.checkpoint
"""


def fingerprint():
    return f"{sys.version_info.major}.{sys.version_info.minor} {hashlib.sha256(LOCK.read_bytes()).hexdigest()}"


def ready():
    return STAMP.is_file() and STAMP.read_text() == fingerprint() and starts()


def starts():
    """Whether .venv-peers has a Python of this version, and it starts."""
    show = "import sys; print(*sys.version_info[:2])"
    try:
        found = subprocess.run([VENV / "bin" / "python", "-c", show], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return found.stdout.split() == list(map(str, sys.version_info[:2]))


def install():
    if VENV.exists() and not starts():
        say("      .venv-peers is of another Python: making it anew")
        shutil.rmtree(VENV)
    if not VENV.exists():
        run_logged([sys.executable, "-m", "venv", VENV], "peers.log", "Is the project's folder writable?")
    (VENV / ".gitignore").write_text("*\n")
    pip = [VENV / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--no-input"]
    run_logged([*pip, "install", "-r", LOCK], "peers.log", ADVICE)
    run_logged(
        [VENV / "bin" / "python", "-c", PROBE], "peers.log", f"A package in {LOCK.name} does not work on this machine."
    )
    STAMP.write_text(fingerprint())


def setup():
    BUILD.mkdir(exist_ok=True)
    # Two at once in one clone: the second waits, then finds everything done.
    with open(BUILD / "peers.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if ready():
            say(".venv-peers is ready")
            return
        say("making .venv-peers and installing the pinned packages (1 to 5 minutes, once)")
        install()
        say(".venv-peers is ready; python -m benchmarks.peers measures with it")


if __name__ == "__main__":
    main(setup)
