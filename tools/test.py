"""Runs the tests of one tier, on two workers: tools/test.py --tier check|test|full [--part K/N] [arguments for pytest]."""

import subprocess
import sys

from project import ROOT, VENV, environment, main

WORKERS = "2"  # ranks and writers of their own keep more cores than two busy


def run(*arguments):
    """Runs pytest and returns its exit code. The files with the longest tests come first (tests/support/costs.py); all tests of a file
    run on one worker."""
    command = [VENV / "bin" / "python", "-m", "pytest", "tests", "-n", WORKERS, "--dist", "loadfile"]
    command += ["--no-loadscope-reorder", *arguments]
    return subprocess.run(list(map(str, command)), cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    main(lambda: run(*sys.argv[1:]))
