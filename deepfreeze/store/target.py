"""Where an attempt writes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """The run's absolute path and id, and the attempt's id (both 32 hex digits)."""

    run: str
    run_id: str
    attempt: str
