"""What a checkpointed training has done so far, for its user to look at."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Stats:
    """What a ``Checkpoint`` has done so far on this rank."""

    #: the step that was restored
    resumed: int | None = None
    #: captured
    steps: list[int] = field(default_factory=list)
    #: due, but some rank had no memory for them (when_full="skip")
    skipped: list[int] = field(default_factory=list)
    #: the signal that ended training: "SIGTERM"
    stopped: str | None = None
    #: rank 0: step -> the first tensor that differs between ranks, or did when they were last compared
    diverged: dict[int, str] = field(default_factory=dict)
    #: seconds that each of them held up training
    blocking: list[float] = field(default_factory=list)
    #: step -> seconds from hand-over to commit
    committed: dict[int, float] = field(default_factory=dict)
    #: step -> seconds from hand-over to the local tier
    local: dict[int, float] = field(default_factory=dict)
    #: of this rank's part of one checkpoint
    nbytes: int = 0
