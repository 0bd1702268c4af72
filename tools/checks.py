"""Runs the checks of tools/lint.py and tools/analyse.py, two at a time, and prints of each whether it passed."""

import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from project import BUILD, ROOT, VENV, Failure, environment, say

JOBS = str(os.cpu_count() or 1)


def native_sources(*suffixes):
    return sorted(path for path in (ROOT / "native").rglob("*") if path.suffix in suffixes)


def tool(name, *arguments):
    """Runs a program of .venv and returns its output. ``Failure``, with all that it printed, if it fails."""
    command = [str(VENV / "bin" / name), *map(str, arguments)]
    done = subprocess.run(
        command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Failure(f"{done.stdout}{done.stderr}{name} {' '.join(map(str, arguments[:4]))}: see above")
    return done.stdout


def passed(name, check):
    """Runs a check and prints whether it passed; above that the message of its ``Failure``, if it failed."""
    begun = time.monotonic()
    try:
        check()
        report, verdict = "", "ok"
    except Failure as failure:
        report, verdict = f"{failure}\n", "FAILED"
    say(f"{report}{name}: {verdict} ({time.monotonic() - begun:.0f} s)")
    return verdict == "ok"


def run(title, checks):
    """Runs all checks, {name: function}, also if some fail. ``Failure`` with the names of those that failed."""
    BUILD.mkdir(exist_ok=True)
    # Two at a time: some keep all cores busy, some wait a lot.
    with ThreadPoolExecutor(2) as pool:
        failures = [name for name, ok in zip(checks, pool.map(passed, checks, checks.values()), strict=True) if not ok]
    if failures:
        raise Failure(f"{title}: {', '.join(failures)}")
