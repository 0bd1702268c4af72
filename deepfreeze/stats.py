"""What a checkpointed training has done so far, for its user to look at."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Stats:
    """What a ``Checkpoint`` has done so far on this rank."""

    resumed: int | None = None  # the step that was restored
    steps: list[int] = field(default_factory=list)  # captured
    skipped: list[int] = field(default_factory=list)  # due, but some rank had no memory for them (when_full="skip")
    stopped: str | None = None  # the signal that ended training: "SIGTERM"
    diverged: dict[int, str] = field(
        default_factory=dict
    )  # rank 0: step -> the first tensor that differs between ranks
    blocking: list[float] = field(default_factory=list)  # seconds that each of them held up training
    committed: dict[int, float] = field(default_factory=dict)  # step -> seconds from hand-over to commit
    local: dict[int, float] = field(default_factory=dict)  # step -> seconds from hand-over to the local tier
    nbytes: int = 0  # of this rank's part of one checkpoint
