"""The paths of the engine's libraries that `make setup` has built, and whether they are as new as their sources."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(
    os.environ.get("DEEPFREEZE_TESTING_BUILD", ROOT / "build" / "native-testing")
)  # tools/coverage.py has another
TODO = "run `make setup`"


def _is_old(folder: Path) -> bool:
    """Whether Ninja would build anything in this build folder."""
    ninja = Path(sys.executable).with_name("ninja")
    if not (folder / "build.ninja").exists() or not ninja.exists():
        return False
    done = subprocess.run([ninja, "-C", folder, "-n"], capture_output=True, text=True, timeout=60)
    return "no work to do" not in done.stdout


def complaint() -> str | None:
    """The message if the engine in ``veloc_bindings`` is older than its sources, since tests of an older engine prove nothing; empty if
    all is well, or if the engine was not built here."""
    folder, installed = ROOT / "build" / "native", ROOT / "veloc_bindings" / "libdeepfreeze.so"
    built = folder / installed.name
    if _is_old(folder) or (built.exists() and installed.exists() and built.stat().st_mtime > installed.stat().st_mtime):
        where = installed.relative_to(ROOT)
        return f"{where}: expected an engine as new as its sources, native/; found an older one: {TODO}"
    return None


def testing_library() -> Path:
    """The path of the testing library: an engine of which a test can fail or delay each system call, or die at it. ``make setup``
    builds it.

    Raises:
        RuntimeError: it is missing, or older than its sources.
    """
    library = BUILD / "libdeepfreeze_testing.so"
    found = "none" if not library.exists() else "an older one" if _is_old(BUILD) else None
    if found:
        where = library.relative_to(ROOT)
        raise RuntimeError(
            f"{where}: expected the tests' engine, as new as its sources, native/; found {found}: {TODO}"
        )
    return library
