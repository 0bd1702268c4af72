"""Trainings that are killed one after the other, at the price of one start of TensorFlow: the other end of tests/jobs/lives.py."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import jobs, processes


class Lives:
    """The process that has TensorFlow imported, and whose children train."""

    def __init__(self, process: subprocess.Popen) -> None:
        self._process = process

    def start(self, **arguments: Any) -> int:
        """Starts a training, with the arguments of ``train`` in tests/jobs/lives.py. Returns its process id."""
        self._process.stdin.write(json.dumps(arguments, default=str) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line.startswith("pid "), f"the trainings' parent ended with {self._process.wait(processes.LIMIT_S)}"
        return int(line.split()[1])

    def ended(self) -> int:
        """Waits until the training that was started last is dead. Returns the signal that has killed it; 0 if none has."""
        line = self._process.stdout.readline()
        assert line.startswith("ended "), f"the trainings' parent ended with {self._process.wait(processes.LIMIT_S)}"
        return int(line.split()[1])


@contextlib.contextmanager
def lives(folder: Path, library: str) -> Iterator[Lives]:
    """Starts that process, with the tests' engine ``library``. Shows what it has printed if the block fails."""
    errors = folder / "errors"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command, env = [sys.executable, jobs.JOBS / "lives.py"], jobs.environment(DEEPFREEZE_LIBRARY=library)
    with open(errors, "w") as file, processes.child(command, env=env, stderr=file, **pipes) as process:
        try:
            yield Lives(process)
        except BaseException:
            print(errors.read_text()[-jobs.TAIL :])
            raise
