"""What Horovod, the launcher and the scheduler tell a process: which rank it is of how many, and when its job will be ended."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from deepfreeze import arguments
from deepfreeze.errors import OptionError
from deepfreeze.notices import Notify

# Variables in which launchers tell a process how many there are of it: srun, Open MPI, MPICH and Intel MPI, torchrun and others,
# horovodrun with Gloo.
# SLURM_NTASKS is none of them: every batch script has it, also where a step of one process runs.
_SIZES = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "WORLD_SIZE", "HOROVOD_SIZE")
_OWN_END = "DEEPFREEZE_ENDS_AT"
_SLURM_END = "SLURM_JOB_END_TIME"  # SLURM 22.05 and later
_FLUX_SECONDS = 10.0  # for which flux is waited for


def launched_as_several(environment: Mapping[str, str]) -> tuple[str, int] | None:
    """The variable by which a launcher says that it has started several processes, and their number. None if none says so."""
    for name in _SIZES:
        value = environment.get(name, "")
        if value.isdecimal() and int(value) > 1:
            return name, int(value)
    return None


def horovod() -> Any:
    """The module ``horovod.tensorflow``, if the program has called its ``init()`` and there are several ranks; else None."""
    hvd: Any = sys.modules.get("horovod.tensorflow")
    return hvd if hvd is not None and hvd.is_initialized() and hvd.size() > 1 else None


def tensorflow() -> Any:
    """The module ``tensorflow``, which ``horovod.tensorflow`` has imported. To be called where that is in use."""
    return sys.modules["tensorflow"]


def horovod_ranks() -> tuple[int, int]:
    """This process's rank and the number of ranks: Horovod's, else 0 of 1."""
    hvd = horovod()
    return (0, 1) if hvd is None else (hvd.rank(), hvd.size())


def job_ends_at(environment: Mapping[str, str], notify: Notify, clock: Callable[[], float] = time.time) -> float | None:
    """When the job will be ended, in Unix seconds: what the user's variable DEEPFREEZE_ENDS_AT says, else SLURM, else Flux; None where
    nobody says it. ``OptionError`` if DEEPFREEZE_ENDS_AT is no time, or one that is over. What a scheduler says is left aside then, and
    ``notify`` is told. ``clock``: Unix seconds."""
    if own := environment.get(_OWN_END):
        seconds = _seconds(own)
        arguments.require(_OWN_END, own, seconds is not None, "a time in Unix seconds, as `date +%s` prints it")
        assert seconds is not None
        return time_to_come(_OWN_END, seconds, clock())
    name, said = _SLURM_END, environment.get(_SLURM_END)
    if said is None:
        name, said = "flux job timeleft", _flux(environment, clock)
    if said is None:
        return None
    seconds = _seconds(said)
    if seconds is not None and seconds > clock():
        return seconds
    notify("info", f"{name} says {said!r}, which is no time to come: the job's end is not known (ends_at=)")
    return None


def time_to_come(where: str, seconds: float, now: float) -> float:
    """``seconds``, if that is after ``now``, both in Unix seconds. ``OptionError`` if it is not."""
    if seconds > now:
        return seconds
    raise OptionError(
        where=where,
        expected="a time that is to come, in Unix seconds",
        found=f"{seconds:.0f}, {now - seconds:.0f} s ago",
        todo="pass the time at which the job ends, or None if it has no end",
    )


def _seconds(text: str) -> float | None:
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) else None


def _flux(environment: Mapping[str, str], clock: Callable[[], float]) -> str | None:
    """What Flux says, made Unix seconds. A job without a limit has "inf" seconds left, and so no end."""
    if "FLUX_JOB_ID" not in environment or shutil.which("flux") is None:
        return None
    try:
        answer = subprocess.run(
            ["flux", "job", "timeleft"], capture_output=True, text=True, timeout=_FLUX_SECONDS, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    left = _seconds(answer.stdout.strip())
    return None if answer.returncode or left is None else str(clock() + left)
