"""Puts Horovod into one of the project's virtual environments, by the command `deepfreeze build-horovod` of the checkout. The wheel is
built once and kept in the user's cache."""

import hashlib
import subprocess

import environment
import system
from environment import MAIN
from project import ROOT, Failure, main

RECIPE = ROOT / "deepfreeze" / "horovod_build"


def stamp(place):
    return place.venv / ".horovod"


def mark(place):
    """The text of the stamp: what Horovod was built against, and how."""
    recipe = b"".join(path.read_bytes() for path in sorted(RECIPE.glob("*.py")))
    return f"{environment.fingerprint(place)} {hashlib.sha256(recipe).hexdigest()}"


def ready(place=MAIN):
    return stamp(place).is_file() and stamp(place).read_text() == mark(place)


def install(place=MAIN):
    compiler = system.compiler() or "c++"
    command = [place.python, "-m", "deepfreeze", "build-horovod"]
    done = subprocess.run(command, cwd=ROOT, env=place.variables(CXX=compiler), stdin=subprocess.DEVNULL, check=False)
    if done.returncode:
        raise Failure(
            f"Horovod is not installed in {place.venv.name}: see above. `make distclean` removes a half-made environment."
        )
    stamp(place).write_text(mark(place))


if __name__ == "__main__":
    main(install)
