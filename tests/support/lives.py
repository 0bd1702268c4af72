"""Trainings in children of one process, at the price of one start of TensorFlow: the other end of tests/jobs/lives.py. They have the tests'
engine, and may be killed."""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support import jobs, processes


class Lives:
    """The process that has TensorFlow imported, and whose children train."""

    def __init__(self, process: subprocess.Popen, errors: Path) -> None:
        """``errors``: the file of its standard error."""
        self._process, self._errors = process, errors

    def start(self, **arguments: Any) -> int:
        """Starts a training, with the arguments of ``train`` in tests/jobs/lives.py. Returns its process id."""
        self._process.stdin.write(json.dumps(arguments, default=str) + "\n")
        self._process.stdin.flush()
        return self._told("pid")

    def ended(self) -> int:
        """Waits for the end of the training that was started last. Returns its exit code, which is negative if a signal has killed it."""
        return self._told("ended")

    def run(self, call: str, **arguments: Any) -> None:
        """Runs the body of a test, MODULE:TEST, in a child. AssertionError, with the end of what it has printed, if it fails."""
        before = self._errors.stat().st_size
        self.start(call=call, **arguments)
        code = self.ended()
        said = self._errors.read_bytes()[before:].decode(errors="replace")
        assert code == 0, f"{call} ended with {code}:\n{said[-jobs.TAIL :]}"

    def _told(self, word: str) -> int:
        line = self._process.stdout.readline()
        assert line.startswith(f"{word} "), f"the trainings' parent ended with {self._process.wait(processes.LIMIT_S)}"
        return int(line.split()[1])


@contextlib.contextmanager
def lives(folder: Path, library: str) -> Iterator[Lives]:
    """Starts that process, with the tests' engine ``library``. Shows what it has printed if the block fails."""
    errors = folder / "errors"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command, env = [sys.executable, jobs.JOBS / "lives.py"], jobs.environment(DEEPFREEZE_LIBRARY=library)
    with open(errors, "w") as file, processes.child(command, env=env, stderr=file, **pipes) as process:
        try:
            yield Lives(process, errors)
        except BaseException:
            print(errors.read_text()[-jobs.TAIL :])
            raise


def in_a_life(test: Callable[..., None]) -> Callable[..., None]:
    """A decorator: the test's body runs in a child, and so with the tests' engine. TensorFlow keeps the ops of the first engine that a
    process has loaded, so no test may bring a second one into pytest's process. The body's arguments come as JSON, a path as text. The
    module has the fixture ``trainings``, which is a ``Lives``."""

    @functools.wraps(test)
    def wrapper(trainings: Lives, **arguments: Any) -> None:
        trainings.run(f"{test.__module__}:{test.__name__}", **arguments)

    own = list(inspect.signature(test).parameters.values())
    first = inspect.Parameter("trainings", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    wrapper.__signature__ = inspect.Signature([first, *own])  # type: ignore[attr-defined]
    return wrapper
