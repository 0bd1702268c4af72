"""Asks ``deepfreeze tune`` for the settings of a workload on this machine, for ``benchmarks.goodput``."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import jobs
from benchmarks.report import ROOT, say

STEPS = 2000  # of the training: the tuner ends sooner
MEMORY = "2.6 GB"  # for captures: four of NT3's, and twelve of ResNet-50's
_LIMIT = 1500.0  # seconds


@dataclass(frozen=True)
class Tuned:
    """The tuner's choice: a checkpoint every ``interval`` steps, and options of the engine."""

    interval: int
    writers: int
    transfers: int
    uncommitted: int

    @property
    def engine(self) -> dict[str, Any]:
        """The engine's options."""
        numbers = asdict(self)
        del numbers["interval"]
        return {**numbers, "in_flight": self.uncommitted, "io": "direct"}


def chosen(text: str) -> Tuned:
    """The choice in what ``deepfreeze tune --json`` prints. ``SystemExit`` if it is not there."""
    try:
        found = json.loads(text)
        return Tuned(
            int(found["interval"]),
            **{name: int(found["chosen"][name]) for name in ("writers", "transfers", "uncommitted")},
        )
    except (ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"deepfreeze tune --json printed no choice ({error!r}):\n{text[-2000:]}") from error


def tuned(workload: str, disk: Path, mtbf: float) -> Tuned:
    """Tunes the engine for a training of the workload whose run is on ``disk``. ``mtbf``: seconds between two kills, as the program's
    ``Budget`` has them. ``SystemExit`` if the command fails."""
    say(f"{workload}: deepfreeze tune ...")
    folder = jobs.empty(disk, "tune")
    params = {"workload": workload, "run": str(folder / "run"), "marks": str(folder / "marks"), "every": 10, "keep": 1}
    params |= {"engine": {"io": "direct"}, "memory": MEMORY, "steps": STEPS, "mtbf": mtbf}
    program = [sys.executable, "-m", "benchmarks.recovery_job", json.dumps(params)]
    command = [sys.executable, "-m", "deepfreeze", "tune", "--json", "--", *program]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_LIMIT)
    except subprocess.TimeoutExpired as error:
        raise SystemExit(f"deepfreeze tune chose nothing for {workload} in {_LIMIT:g} s") from error
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise SystemExit(
            f"deepfreeze tune failed for {workload} with {done.returncode}; without it only --quick measures:\n{said}"
        )
    return chosen(done.stdout)
