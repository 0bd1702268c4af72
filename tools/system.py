"""Checks that the system has Python 3.10 or newer with venv, a C++17 compiler and make. If one is missing, installs it with apt where this
is Debian and we are root (DEEPFREEZE_NO_APT=1 forbids that), else says what to install."""

import os
import shutil
import subprocess
import sys

from project import Failure, main, run_logged, say

PYTHON = (3, 10)
PROGRAM = "#include <filesystem>\n#include <optional>\nstatic_assert(__cplusplus >= 201703L);\nint main() {}\n"
PACKAGES = {"compiler": "g++", "make": "make", "venv": f"python3.{sys.version_info.minor}-venv"}
NODES = (
    "glusterfs-server",
    "glusterfs-client",
    "iproute2",
)  # for tests/horovod/test_nodes.py alone, which skips without
FUZZING = ("clang", "libclang-rt-dev")  # for tools/fuzz.py alone: 15 to 40 MB to load


def compiles(compiler):
    command = [compiler, "-std=c++17", "-fsyntax-only", "-x", "c++", "-"]
    try:
        return subprocess.run(command, input=PROGRAM.encode(), capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def compiler():
    """The name of the first C++17 compiler that is found, or None."""
    candidates = [os.environ.get("CXX"), "g++", "clang++", "c++"]
    return next((found for name in candidates if name and (found := shutil.which(name)) and compiles(found)), None)


def missing():
    """What is missing, by its key in PACKAGES, with the message for the user."""
    absent = {}
    if compiler() is None:
        absent["compiler"] = (
            "no C++17 compiler: neither $CXX nor g++ nor clang++ on PATH compiles C++17 (g++ >= 9, clang >= 10)"
        )
    if shutil.which("make") is None:
        absent["make"] = "no make on PATH (Horovod's build needs it)"
    probe = [sys.executable, "-c", "import ensurepip, venv"]
    if subprocess.run(probe, capture_output=True, check=False).returncode:
        absent["venv"] = f"{sys.executable} has no venv and ensurepip modules"
    return absent


def install(packages):
    """Installs Debian packages where that is possible; returns whether it was tried."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None or os.environ.get("DEEPFREEZE_NO_APT"):
        return False
    say(f"      installing by apt: {' '.join(packages)}")
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    advice = f"Is there a network? Install {' '.join(packages)} by hand, then run make again."
    run_logged(["apt-get", "update"], "apt.log", advice, env=env)
    run_logged(["apt-get", "install", "-y", "--no-install-recommends", *packages], "apt.log", advice, env=env)
    return True


def check():
    if sys.version_info < PYTHON:
        have = ".".join(map(str, sys.version_info[:3]))
        raise Failure(
            f"Python {have} is too old: 3.10 or newer is needed.\nInstall one and run `make PYTHON=python3.11 setup`."
        )
    absent = missing()
    if absent and install([PACKAGES[key] for key in absent]):
        absent = missing()
    if absent:
        packages = " ".join(PACKAGES[key] for key in absent)
        raise Failure(
            "\n".join(absent.values())
            + f"\nOn Debian or Ubuntu: sudo apt-get install {packages}"
            + "\nOn a cluster: load a compiler module (for instance `module load gcc`), or set CXX to one; then run make again."
        )


if __name__ == "__main__":
    main(check)
