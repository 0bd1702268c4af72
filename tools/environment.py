"""Makes .venv and other virtual environments. Each is made once and filled from a lock file; a stamp says so, and a second run does
nothing."""

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import project
from project import LOCK, VENV, main, run_logged, say


@dataclass(frozen=True)
class Place:
    """A virtual environment and the file that pins its packages. ``log``: the name of the log of its making, in build/logs; ``probe``:
    imports that work once the packages are there. Half of an environment must not pass for a whole one."""

    venv: Path
    lock: Path
    log: str
    probe: str = "import h5py, keras, mpi4py.MPI, numpy, tensorflow"

    @property
    def python(self):
        return self.venv / "bin" / "python"

    @property
    def stamp(self):
        return self.venv / ".packages"

    @property
    def pip(self):
        return [self.python, "-m", "pip", "--disable-pip-version-check", "--no-input"]

    def variables(self, **extra):
        """The environment variables for programs of this virtual environment."""
        path = f"{self.venv / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return project.environment(**{"VIRTUAL_ENV": self.venv, "PATH": path, **extra})


MAIN = Place(VENV, LOCK, "pip.log")
PIP = MAIN.pip
ADVICE = (
    "Is there a network, and 3 GB of free disk? `make distclean` removes a half-made environment; then run make again."
)


def fingerprint(place=MAIN):
    return f"{sys.version_info.major}.{sys.version_info.minor} {hashlib.sha256(place.lock.read_bytes()).hexdigest()}"


def ready(place=MAIN):
    return place.stamp.is_file() and place.stamp.read_text() == fingerprint(place) and place.python.exists()


def python_version(place=MAIN):
    """Whether the environment's Python has this version; False if there is none, or it does not start."""
    command = [
        str(place.python),
        "-c",
        "import sys; print(sys.version_info[:2] == tuple(map(int, sys.argv[1:])))",
    ]
    command += map(str, sys.version_info[:2])
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() == "True"
    except OSError:
        return False


def make(place=MAIN):
    if place.venv.exists() and not python_version(place):
        say(f"      {place.venv.name} is of another Python: making it anew")
        shutil.rmtree(place.venv)
    if not place.venv.exists():
        run_logged([sys.executable, "-m", "venv", place.venv], "venv.log", "Is the project's folder writable?")


def install(place=MAIN):
    seconds = run_logged([*place.pip, "install", "--no-deps", "-r", place.lock], place.log, ADVICE)
    run_logged(
        [place.python, "-c", place.probe], place.log, f"A package in {place.lock.name} does not work on this machine."
    )
    place.stamp.write_text(fingerprint(place))
    return seconds


if __name__ == "__main__":

    def all_of_it():
        make()
        install()

    main(all_of_it)
