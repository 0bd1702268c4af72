"""The run and attempt to which an engine writes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """``run``: the run's absolute path; ``run_id`` and ``attempt``: 32 hexadecimal digits each."""

    run: str
    run_id: str
    attempt: str
