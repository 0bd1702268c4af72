"""`make check`: the checks of tools/lint.py, then the tests that need no TensorFlow; two minutes in all."""

import subprocess
import sys

import checks
import lint
from project import ROOT, Failure, environment, main, say


def check():
    failure = None
    try:
        checks.run("lint", lint.CHECKS)
    except Failure as reason:
        failure = reason  # what the tests say is worth knowing all the same
    command = [sys.executable, "tools/test.py", "--tier", "check", *sys.argv[1:]]
    code = subprocess.run(command, cwd=ROOT, env=environment(), stdin=subprocess.DEVNULL).returncode
    if failure:
        say("")
        raise failure
    return code


if __name__ == "__main__":
    main(check)
