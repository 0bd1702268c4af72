"""`make setup`: makes .venv, builds Horovod and the engine, and installs deepfreeze. Skips what is done already, so that every other
target can call it first. ``--without-tests`` leaves out what only tests need."""

import fcntl
import os
import sys
import time

import environment
import horovod
import native
import project
import system
from environment import MAIN
from project import BUILD, ROOT, main, run_logged, say


def itself(place=MAIN):
    """Installs deepfreeze into .venv (editable), which also makes the command `deepfreeze`. Takes the engine that is built already."""
    command = [*place.pip, "install", "--no-deps", "--no-build-isolation", "-e", ROOT]
    env = place.variables(DEEPFREEZE_LIBRARY=native.PACKAGE / native.LIBRARY)
    run_logged(
        command, "deepfreeze.log", f"Is {place.venv.name} whole? After `make distclean` it is made anew.", env=env
    )
    (place.venv / ".deepfreeze").write_text(mark())


def installed(place=MAIN):
    stamp = place.venv / ".deepfreeze"
    return stamp.is_file() and stamp.read_text() == mark()


def mark():
    return " ".join(str((ROOT / name).stat().st_mtime_ns) for name in ("pyproject.toml", "setup.py"))


def setup():
    begun = time.monotonic()
    BUILD.mkdir(exist_ok=True)
    # Two makes at once in one clone: the second waits, then finds everything done.
    with open(BUILD / "setup.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        first = not (environment.ready() and horovod.ready())
        if first:
            say("[1/5] looking for Python, a C++17 compiler and make")
            system.check()
        if not environment.ready():
            say("[2/5] making .venv and installing the pinned packages (1 to 3 minutes, once)")
            environment.make()
            environment.install()
        if not horovod.ready():
            say("[3/5] installing Horovod, which is built first if the cache has no wheel (3 to 5 minutes, once)")
            horovod.install()
        if first:
            say("[4/5] building the engine")
        native.install()
        if "--without-tests" not in sys.argv:
            native.for_tests()
        if not installed():
            say("[5/5] installing deepfreeze into .venv (editable)")
            itself()
    if first:
        say(f"set up in {time.monotonic() - begun:.0f} s; logs in {os.path.relpath(project.LOGS)}/")


if __name__ == "__main__":
    main(setup)
