"""Builds the testing library, the engine whose system calls a test can fail, delay or kill."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "native-testing"


def _tool(name: str) -> str:
    beside = Path(sys.executable).parent / name  # where the development dependencies put it
    found = str(beside) if beside.exists() else shutil.which(name)
    if not found:
        raise RuntimeError(f"{name} is missing: install the development dependencies")
    return found


@cache
def testing_library() -> Path:
    """The library's path. Incremental: takes a moment when nothing has changed."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    cmake = _tool("cmake")
    commands = [[cmake, "--build", str(BUILD), "--parallel", "2"]]
    if not (BUILD / "CMakeCache.txt").exists():
        # -O1 compiles in half of a release's time, and no test is about speed.
        options = ["-DDF_TESTING=ON", "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1"]
        commands.insert(0, [cmake, "-G", "Ninja", "-S", str(ROOT / "native"), "-B", str(BUILD), *options])
    BUILD.parent.mkdir(exist_ok=True)
    with open(BUILD.parent / "native-testing.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes may run tests at once
        for command in commands:
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if done.returncode:
                raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}")
    return BUILD / "libdeepfreeze_testing.so"
