"""`make test-pythons`: tests DeepFreeze on the Pythons that it promises besides the one of .venv. For each of them that is found on PATH,
or among pyenv's, it makes .venv-python3.12 or the like, once, with the pinned packages. There it runs the tests that need no
TensorFlow, then some that train and restore. Horovod is not built there. A Python that is not found is named; with CI=true in the
environment, at least two must be found. Arguments go to pytest; with --make-only no test runs."""

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import environment
import setup
from project import BUILD, LOCK, ROOT, VENV, Failure, main, say
from project import environment as variables

LEAST = 2  # further Pythons that a machine of CI must have
PROMISED = ((3, 10), (3, 11), (3, 12), (3, 13))  # pyproject.toml says so too; a test compares
# What may depend on the version of Python, Keras or numpy beyond the tests that need no TensorFlow.
TESTS = ["training/test_keras_callback.py", "training/test_later_built.py", "frameworks/test_bit_exact.py", "thaw"]
PYTEST = ["-q", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]


def name(version):
    return ".".join(map(str, version))


def place(version):
    return environment.Place(ROOT / f".venv-python{name(version)}", LOCK, f"python{name(version)}.log")


def find(version):
    """A program of this version of Python, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    program = f"python{name(version)}"
    for found in (shutil.which(program), *sorted(map(str, pyenv.glob(f"{name(version)}.*/bin/{program}")))):
        if found and starts(found, version):
            return found
    return None


def starts(program, version):
    """Whether the program is a Python of this version that starts. pyenv puts a program on PATH for each Python that it knows, and the
    program may fail to start."""
    show = "import ensurepip, sys, venv; print(*sys.version_info[:2])"
    done = subprocess.run([program, "-c", show], capture_output=True, text=True, check=False)
    return done.stdout.split() == list(map(str, version))


def make():
    """Makes the environment of the Python that runs this program."""
    here = place(sys.version_info[:2])
    BUILD.mkdir(exist_ok=True)
    # Two at once in one clone: the second waits, then finds everything done.
    with open(BUILD / f"python{name(sys.version_info[:2])}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not environment.ready(here):
            say(f"making {here.venv.name} and installing the pinned packages (1 to 3 minutes, once)")
            environment.make(here)
            (here.venv / ".gitignore").write_text("*\n")
            environment.install(here)
        if not setup.installed(here):
            say(f"installing deepfreeze into {here.venv.name} (editable)")
            setup.itself(here)


def test(version, arguments):
    """Makes the environment and runs the tests; returns whether all passed."""
    program = find(version)
    if program is None:
        say(f"Python {name(version)}: not found, left out")
        return True
    say(f"\n== Python {name(version)}: {program}")
    command = [program, __file__, "--make-this"]
    if subprocess.run(command, cwd=ROOT, env=variables(), stdin=subprocess.DEVNULL, check=False).returncode:
        return False
    if arguments == ["--make-only"]:
        return True
    here = place(version)
    # What is on the caller's PYTHONPATH may be of another environment.
    env = {key: value for key, value in here.variables().items() if key != "PYTHONPATH"}
    passed = True
    for tests, tier in ((["tests"], "check"), ([f"tests/{test}" for test in TESTS], "test")):
        command = [here.python, "-m", "pytest", *tests, *PYTEST, "--tier", tier, "-m", "not ranks", *arguments]
        done = subprocess.run(list(map(os.fspath, command)), cwd=ROOT, env=env, stdin=subprocess.DEVNULL, check=False)
        passed = passed and done.returncode == 0
    return passed


def pythons():
    arguments = sys.argv[1:]
    if arguments == ["--make-this"]:
        return make()
    if not (VENV / "bin" / "python").exists():
        raise Failure("there is no .venv, whose tools build the engine: run make setup")
    further = [version for version in PROMISED if not own(version)]
    if os.environ.get("CI") == "true":
        require(further)
    failed = [name(version) for version in further if not test(version, arguments)]
    if failed:
        raise Failure(f"Python {', '.join(failed)}: see above")
    return 0


def require(further):
    """``Failure`` if hardly any of these versions is found: a stage that tests nothing must not count as passed."""
    found = [name(version) for version in further if find(version)]
    if len(found) < LEAST:
        looked_for = ", ".join(f"python{name(version)}" for version in further)
        raise Failure(
            f"looked for {looked_for} on PATH and among pyenv's; found {', '.join(found) or 'none'}. With CI=true at least {LEAST} "
            "must be there: install them, or unset CI"
        )


def own(version):
    """Whether .venv is of this version, so that all other targets test it."""
    return environment.MAIN.stamp.is_file() and environment.MAIN.stamp.read_text().split()[0] == name(version)


if __name__ == "__main__":
    main(pythons)
