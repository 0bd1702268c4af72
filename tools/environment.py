"""The project's .venv: made once, filled from requirements.lock, stamped so that a second run costs nothing."""

import hashlib
import shutil
import subprocess
import sys

from project import LOCK, VENV, Failure, main, run_logged, say

STAMP = VENV / ".packages"
PIP = [VENV / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--no-input"]
ADVICE = (
    "Is there a network, and 3 GB of free disk? `make distclean` removes a half-made environment; then run make again."
)


def fingerprint():
    return f"{sys.version_info.major}.{sys.version_info.minor} {hashlib.sha256(LOCK.read_bytes()).hexdigest()}"


def ready():
    return STAMP.is_file() and STAMP.read_text() == fingerprint() and (VENV / "bin" / "python").exists()


def python_version():
    """The version of the Python in .venv, or None where there is none that starts."""
    command = [
        str(VENV / "bin" / "python"),
        "-c",
        "import sys; print(sys.version_info[:2] == tuple(map(int, sys.argv[1:])))",
    ]
    command += map(str, sys.version_info[:2])
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == "True"
    except OSError:
        return False


def make():
    if VENV.exists() and not python_version():
        say("      .venv is of another Python: making it anew")
        shutil.rmtree(VENV)
    if not VENV.exists():
        run_logged([sys.executable, "-m", "venv", VENV], "venv.log", "Is the project's folder writable?")


def install():
    seconds = run_logged([*PIP, "install", "--no-deps", "-r", LOCK], "pip.log", ADVICE)
    # Half of an environment must not pass for a whole one: the stamp is written only after these imports.
    probe = "import h5py, keras, mpi4py.MPI, numpy, tensorflow"
    run_logged(
        [VENV / "bin" / "python", "-c", probe], "pip.log", f"A package in {LOCK.name} does not work on this machine."
    )
    STAMP.write_text(fingerprint())
    return seconds


def version(package):
    """The version that requirements.lock pins."""
    for line in LOCK.read_text().splitlines():
        name, _, pinned = line.partition("==")
        if name.strip().lower().replace("_", "-") == package:
            return pinned.strip()
    raise Failure(f"{LOCK} pins no {package}")


if __name__ == "__main__":

    def all_of_it():
        make()
        install()

    main(all_of_it)
