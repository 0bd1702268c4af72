"""What the tools share: the project's folders, the environment variables of its programs, and running long steps with a log. Needs the
standard library alone, because it runs before .venv exists."""

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BUILD = ROOT / "build"
LOGS = BUILD / "logs"
LOCK = ROOT / "tools" / "requirements.lock"


class Failure(Exception):
    """Raised by a step that can't go on. The message says what is wrong and what to do."""


def environment(**extra):
    """The environment variables with which the project's programs, tests and jobs run; ``extra`` is added."""
    env = dict(os.environ)
    env.pop("PYTHONHOME", None)
    env["VIRTUAL_ENV"] = str(VENV)
    env["PATH"] = f"{VENV / 'bin'}{os.pathsep}{env.get('PATH', os.defpath)}"
    env.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    # More ranks than cores is normal on a laptop and in CI; Open MPI refuses it unless told.
    env.setdefault("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")
    if os.geteuid() == 0:  # Open MPI wants to be asked twice before it starts as root, as in most containers
        env["OMPI_ALLOW_RUN_AS_ROOT"] = env["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    env.update({name: str(value) for name, value in extra.items()})
    return env


def part_of(text):
    """Reads K/N, the K-th of N parts counted from 1, as (K, N); for argparse."""
    number, _, of = text.partition("/")
    if not (number.isdigit() and of.isdigit() and 1 <= int(number) <= int(of)):
        raise argparse.ArgumentTypeError(f"expected K/N with K from 1 to N; found {text!r}")
    return int(number), int(of)


def say(text):
    print(text, flush=True)


def tail(path, lines=25):
    return "\n".join("    " + line for line in path.read_text(errors="replace").splitlines()[-lines:])


def run_logged(command, log, advice, env=None, cwd=ROOT, beat=30):
    """Runs a long command, with its output in build/logs/LOG, and prints a line now and then. ``Failure``, with the end of the log and
    the advice, if the command fails."""
    LOGS.mkdir(parents=True, exist_ok=True)
    path = LOGS / log
    begun = time.monotonic()
    with open(path, "ab") as out:
        out.write(f"\n$ {shlex.join(map(str, command))}\n".encode())
        out.flush()
        try:
            process = subprocess.Popen(
                list(map(str, command)), stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, cwd=cwd
            )
        except OSError as error:
            raise Failure(f"cannot start {command[0]}: {error.strerror}\n{advice}") from error
        while True:
            try:
                code = process.wait(timeout=beat)
                break
            except subprocess.TimeoutExpired:
                say(f"      {path.stem} ... {time.monotonic() - begun:.0f} s")
            except BaseException:
                process.terminate()
                process.wait()
                raise
    if code:
        where = path.relative_to(ROOT)
        raise Failure(
            f"`{shlex.join(map(str, command))}` ended with {code}. The end of {where}:\n{tail(path)}\n{advice}"
        )
    return time.monotonic() - begun


def main(function):
    """Calls a tool's main function. A ``Failure`` becomes a message on stderr and exit code 1, without a traceback."""
    try:
        sys.exit(function())
    except Failure as failure:
        sys.exit(f"\nFAILED: {failure}")
    except KeyboardInterrupt:
        sys.exit(130)
