"""`make wheel`: builds dist/deepfreeze-VERSION-py3-none-manylinux_2_28_x86_64.whl, which pip installs on any Linux with glibc 2.28 or later
(2018) and any supported Python, without a compiler. ctypes loads the engine, so one wheel serves every Python.

A library that the system's compiler links needs a glibc as new as the system's own. zig (on PyPI as ziglang) is a clang that links for an
older glibc, and links its C++ library in. auditwheel then says whether the wheel keeps what its name promises."""

import fcntl
import platform
import re
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

import environment
from environment import Place
from project import BUILD, ROOT, Failure, main, run_logged, say

GLIBC = "2.28"
PLACE = Place(
    ROOT / ".venv-wheel", ROOT / "tools" / "wheel.lock", "wheel.log", "import auditwheel, setuptools, wheel, ziglang"
)
DIST = ROOT / "dist"
ADVICE = "The whole log is build/logs/wheel.log."


def tag():
    return f"manylinux_{GLIBC.replace('.', '_')}_{platform.machine()}"


def compiler():
    """The compiler as CMake takes it from the variable CXX: a program and its first words."""
    purelib = sysconfig.get_path("purelib", "venv", {"base": str(PLACE.venv), "platbase": str(PLACE.venv)})
    return f"{purelib}/ziglang/zig c++ -target {platform.machine()}-linux-gnu.{GLIBC}"


def copy(folder):
    """Copies what the package is built from, without anything that was built here."""
    for package in ("deepfreeze", "veloc_bindings", "native"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in"):
        shutil.copy(ROOT / name, folder)


def build():
    """Builds the wheel. Returns its path in dist/ and the seconds that it took."""
    with tempfile.TemporaryDirectory(prefix="deepfreeze-wheel-") as folder:
        source, made = Path(folder, "source"), Path(folder, "made")
        source.mkdir()
        copy(source)
        command = [*PLACE.pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", made]
        command += ["--config-settings", f"--build-option=--plat-name={tag()}", source]
        env = PLACE.variables(CXX=compiler(), CMAKE_ARGS="-DCMAKE_SHARED_LINKER_FLAGS=-s")
        env.pop("DEEPFREEZE_LIBRARY", None)
        seconds = run_logged(command, PLACE.log, ADVICE, env=env)
        (wheel,) = made.glob("*.whl")
        DIST.mkdir(exist_ok=True)
        return Path(shutil.copy2(wheel, DIST)), seconds


def audit(wheel):
    """``Failure`` unless auditwheel finds the wheel fit for what its name says."""
    words = [str(PLACE.python), "-m", "auditwheel", "show", str(wheel)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=PLACE.variables())
    text = " ".join(done.stdout.split())
    found = re.search(r'is consistent with the following platform tag: "([^"]+)"', text)
    if done.returncode or found is None or tag() not in wheel.name:
        raise Failure(f"auditwheel does not take {wheel.name}:\n{done.stdout}{done.stderr}")
    glibc = re.fullmatch(rf"manylinux_2_(\d+)_{platform.machine()}", found[1])
    if glibc is None or int(glibc[1]) > int(GLIBC.split(".")[1]):
        raise Failure(f"{wheel.name} needs more than its name says: {found[1]}")
    return found[1]


def wheel():
    BUILD.mkdir(exist_ok=True)
    # Two at once in one clone: the second waits.
    with open(BUILD / "wheel.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not environment.ready(PLACE):
            say("making .venv-wheel and installing the pinned packages (half a minute, once)")
            environment.make(PLACE)
            environment.install(PLACE)
        say("building the engine and the wheel (a minute or two)")
        made, seconds = build()
        say(f"{made.relative_to(ROOT)}: built in {seconds:.0f} s; auditwheel: {audit(made)}")


if __name__ == "__main__":
    main(wheel)
