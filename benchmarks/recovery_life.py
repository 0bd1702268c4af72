"""The process of a training that is killed and started again, and what it has noted of its life. Imports neither TensorFlow nor Keras."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import deepfreeze
from benchmarks.report import ROOT

PATIENCE = 180.0  # seconds for a start
LOOK = 0.02  # seconds between two looks at a training
PHASES = ("process start", "model", "restore", "first step")  # of a restart, in order


@dataclass(frozen=True)
class Mark:
    """A moment of a life: ``at`` in seconds of the monotonic clock, ``step``: how many steps were done."""

    name: str
    at: float
    step: int


@dataclass(frozen=True)
class Life:
    """A process of the training, from its start to its kill."""

    started: float
    killed: float
    marks: Sequence[Mark]

    def restart(self) -> dict[str, float]:
        """Seconds of each of ``PHASES``: until the modules are imported, until the model is built, until it is restored, until the first
        new step is done, in which the train function is traced."""
        ends = [next(mark.at for mark in self.marks if mark.name == name) for name in ("imported", "built", "restored")]
        ends.append(self.steps[0].at)
        return {name: end - begin for name, begin, end in zip(PHASES, [self.started, *ends[:-1]], ends, strict=True)}

    @property
    def resumed(self) -> int:
        """The step at which the life began."""
        return next(mark.step for mark in self.marks if mark.name == "restored")

    @property
    def steps(self) -> list[Mark]:
        """The ends of its steps."""
        return [mark for mark in self.marks if mark.name == "step"]

    @property
    def seconds(self) -> list[float]:
        """Seconds of each step but the first, checkpoints included."""
        ends = [mark.at for mark in self.steps]
        return [after - before for before, after in itertools.pairwise(ends)]


def marks(text: str) -> list[Mark]:
    """The marks that a life has written."""
    lines = (line.split() for line in text.splitlines())
    return [Mark(name, float(at), int(step)) for name, at, step in lines]


class Training:
    """A training by ``benchmarks.recovery_job``, with its run and everything else in ``folder``. One process of it runs at a time."""

    def __init__(self, folder: Path, **params: object) -> None:
        """``params``: what the job is told besides ``run`` and ``marks``; ``workload`` among them."""
        self.run, self._folder, self._params = folder / "run", folder, params
        self._marks, self._output = folder / "marks", folder / "output"
        self._job: subprocess.Popen | None = None
        self._started = 0.0

    def start(self) -> None:
        """Starts the process."""
        self._marks.unlink(missing_ok=True)
        told = json.dumps({**self._params, "run": str(self.run), "marks": str(self._marks)})
        # The files that a killed process leaves in its temporary directory go with everything else.
        environment = dict(os.environ, TF_CPP_MIN_LOG_LEVEL="3", PYTHONWARNINGS="ignore", TMPDIR=str(self._folder))
        with self._output.open("wb") as output:
            self._started = time.monotonic()
            command = [sys.executable, "-m", "benchmarks.recovery_job", told]
            self._job = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)

    def marks(self) -> list[Mark]:
        """The marks that the process has noted so far."""
        return marks(self._marks.read_text()) if self._marks.exists() else []

    def wait(self, what: Callable[[], bool], patience: float = PATIENCE) -> None:
        """Waits until ``what`` is true. ``SystemExit`` if the process ends by itself, or after ``patience`` seconds."""
        deadline = time.monotonic() + patience
        while not what():
            self.check()
            if time.monotonic() > deadline:
                raise SystemExit(f"{self._params['workload']}: no step, or no epoch, after {patience:g} s")
            time.sleep(LOOK)

    def wait_for_a_step(self) -> None:
        """Waits until the process has done a step."""
        self.wait(lambda: any(mark.name == "step" for mark in self.marks()))

    def check(self) -> None:
        """``SystemExit`` with the end of its output if the process has ended by itself."""
        if self._job is not None and self._job.poll() is not None:
            text = self._output.read_text(errors="replace")[-3000:]
            code = self._job.returncode
            raise SystemExit(f"{self._params['workload']}: the training ended by itself with {code}:\n{text}")

    def kill(self) -> Life:
        """Ends the process by SIGKILL."""
        assert self._job is not None
        killed = time.monotonic()
        self._job.kill()
        self._job.wait()
        return Life(self._started, killed, self.marks())

    def committed(self) -> list[int]:
        """The steps of the run's checkpoints."""
        try:
            return [info.step for info in deepfreeze.checkpoints(self.run)]
        except deepfreeze.NotFoundError:
            return []  # the first start has not made it yet
