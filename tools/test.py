"""Runs the tests of one tier, two at a time: tools/test.py --tier check|test|full [--part K/N] [what pytest takes]."""

import subprocess
import sys

from project import ROOT, VENV, environment, main

WORKERS = "2"  # ranks and writers of their own keep more cores than two busy


def run(*arguments):
    """Returns pytest's exit code. The files come in the order of their cost (tests/support/costs.py), each on one worker."""
    command = [VENV / "bin" / "python", "-m", "pytest", "tests", "-n", WORKERS, "--dist", "loadfile"]
    command += ["--no-loadscope-reorder", *arguments]
    return subprocess.run(list(map(str, command)), cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL).returncode


if __name__ == "__main__":
    main(lambda: run(*sys.argv[1:]))
