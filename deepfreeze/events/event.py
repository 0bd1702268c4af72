"""The events of a training. Each is a frozen record; docs/format.md ("Events") has the same table for the file that keeps them."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field, fields
from typing import Any

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event of one training, on this rank. ``step``: the checkpoint's step, or the step of the training; None if the event has none.
    ``t``: nanoseconds since 1970, UTC; ``m``: seconds on the process's monotonic clock, for differences between events."""

    step: int | None = None
    t: int = field(default_factory=time.time_ns)
    m: float = field(default_factory=time.monotonic)

    @property
    def kind(self) -> str:
        """The class's name in lower case."""
        return type(self).__name__.lower()

    def to_json(self, began: float) -> dict[str, Any]:
        """The event as plain JSON values, without members that are None. ``began``: the value of ``m`` that the file calls 0."""
        found: dict[str, Any] = {"v": VERSION, "t": self.t, "m": round(self.m - began, 6), "kind": self.kind}
        for name in (own.name for own in fields(self) if own.name not in found):
            value = getattr(self, name)
            if value is not None:
                found[name] = value
        return found


@dataclass(frozen=True, kw_only=True)
class Attempt(Event):
    """A job has started in a run. ``t`` and ``m``: when the start began. ``step``: from which training goes on; ``resumed``: the same if
    a checkpoint was restored. ``again``: the model has been trained by this ``Checkpoint`` before. ``run_id`` and ``attempt``: 32
    hexadecimal digits; ``ranks``: the world's size; ``host`` and ``pid``: of this rank."""

    step: int
    run_id: str
    attempt: str
    ranks: int
    host: str
    pid: int
    resumed: int | None = None
    again: bool = False


@dataclass(frozen=True, kw_only=True)
class Started(Event):
    """Rank 0's first new step is done, ``step``, or its first execution of several steps: the job has gone on from ``Attempt.step``. It
    comes once in a process. ``seconds``: since the beginning that ``since`` names, "process", or "attempt" where the process can't tell its
    own (other systems than Linux) or is an interactive session."""

    step: int
    seconds: float
    since: str

    @classmethod
    def noted(cls, t: int, m: float, step: int, seconds: float, since: str) -> list[Event]:
        """For ``Events.notes``."""
        return [cls(t=t, m=m, step=step, seconds=round(seconds, 3), since=since)]


@dataclass(frozen=True, kw_only=True)
class Captured(Event):
    """The state of ``step`` was captured and handed to the engine. ``nbytes``: bytes of this rank's part."""

    step: int
    nbytes: int

    @classmethod
    def noted(cls, t: int, m: float, step: int, nbytes: int) -> list[Event]:
        """For ``Events.notes``."""
        return [cls(t=t, m=m, step=step, nbytes=nbytes)]


@dataclass(frozen=True, kw_only=True)
class Blocked(Event):
    """The checkpoint of ``step`` has held up training for ``seconds``, on this rank, in the callback."""

    step: int
    seconds: float

    @classmethod
    def noted(cls, t: int, m: float, step: int, seconds: float) -> list[Event]:
        """For ``Events.notes``."""
        return [cls(t=t, m=m, step=step, seconds=seconds)]


@dataclass(frozen=True, kw_only=True)
class Skipped(Event):
    """``step`` was due and is not saved. ``why``: "full" (some rank had no memory for it), "storage" (``storage=``: the checkpoints that
    stay leave no room for it) or "unequal" (the ranks' weights differed when training began)."""

    step: int
    why: str


@dataclass(frozen=True, kw_only=True)
class Local(Event):
    """This rank's part of the checkpoint is whole on the local tier, ``seconds`` after the hand-over to the engine."""

    step: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class External(Event):
    """The checkpoint is committed, ``seconds`` after the hand-over. ``written``: seconds from the hand-over until this rank's bytes were
    durable on the external store."""

    step: int
    seconds: float
    written: float


@dataclass(frozen=True, kw_only=True)
class Superseded(Event):
    """The checkpoint of ``step`` was given up for a newer one, of the step ``by``. That is no failure. Either ``by`` was committed before
    it (``Engine(transfers=)``) and retention would not have kept ``step``; or ``by`` was due while there was no room for it, and no rank
    had begun to write ``step`` (``Engine(when_full="replace")``)."""

    step: int
    by: int


@dataclass(frozen=True)
class Unfinished:
    """How far a checkpoint is that is neither committed nor failed. ``level``: the highest that it has reached, "captured" or "local";
    ``nbytes``: of this rank's part; ``local``, ``external``: how many of them are on the local tier, and written to the external store;
    ``published``: whether this rank's part is durable there, so that the commit is to come; ``seconds``: since the hand-over to the engine;
    ``waits_for``: the thing for which the checkpoint waits, "" while its bytes are being written."""

    step: int
    level: str
    nbytes: int
    local: int
    external: int
    published: bool
    seconds: float
    waits_for: str


@dataclass(frozen=True, kw_only=True)
class Progress(Event):
    """How far rank 0's unfinished checkpoints are, the oldest first. It comes once a second at most, and only while one of them is a second
    old or more; once more, with none, when there is none any more."""

    unfinished: tuple[Unfinished, ...]

    def to_json(self, began: float) -> dict[str, Any]:
        """See ``Event``. An unfinished checkpoint is an object."""
        return {**super().to_json(began), "unfinished": [asdict(one) for one in self.unfinished]}


@dataclass(frozen=True, kw_only=True)
class Diverged(Event):
    """The ranks' weights differ. ``tensor``: the name of the first tensor that differs, None if only the ranks are known. ``refused``: the
    checkpoint is not committed for it, which a ``Failed`` tells too."""

    step: int
    message: str
    tensor: str | None = None
    refused: bool = False


@dataclass(frozen=True, kw_only=True)
class Failed(Event):
    """A checkpoint was not committed, or the engine has failed. ``raised``: an exception says it too, so no warning is needed.
    ``reported``: the engine has reported it, so rank 0 knows of it; False for the failure of a call on this rank. ``tried``: True if the
    checkpoint was taken to try a setting of the engine, else None; one warning tells of all of these."""

    message: str
    raised: bool
    reported: bool
    tried: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Notice(Event):
    """A message for the user that is no failure of a checkpoint. ``level``: "warning" or "info". ``warned``: Python shows it as a warning
    (``CheckpointWarning``), with the line of the user's program. ``said``: it is a line on standard error, which ``verbose=1`` asks for.
    If it is neither, the logger ``deepfreeze`` shows it."""

    message: str
    level: str
    warned: bool = False
    said: bool = False


@dataclass(frozen=True, kw_only=True)
class Decision(Event):
    """The ranks have agreed on another interval between two checkpoints, for a policy that learns. ``step``: the interval counts from this
    step on; ``before``, ``after``: the agreed wish in the policy's unit, usually steps; ``before`` is None at the first one.

    Of a policy that explains itself (``Auto``): ``reason``: "profile", "resumed", "store", "copy", "training", "slack" or "failures";
    ``rank``: the one whose wish decided; ``terms``: what that rank has measured (``plan.checkfreq.Profile``), and what follows from it
    (``plan.checkfreq.Bounds``)."""

    step: int
    after: int
    before: int | None = None
    reason: str | None = None
    rank: int | None = None
    terms: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Measured(Event):
    """By how much the last four checkpoints have lengthened the training on this rank, as a policy has measured it (``Auto``). ``step``:
    the step up to which it was measured; ``interval``: steps from one checkpoint to the next; ``overhead``: seconds beyond those of steps
    without checkpoints, over the latter; ``low``, ``high``: its 95 % interval."""

    step: int
    interval: int
    overhead: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Stop(Event):
    """The ranks have agreed to commit ``step`` and to end training, because a rank has received ``signal`` ("SIGTERM"), or, with None,
    because the scheduler will end the job soon (``ends_at=``). "resume-check": it is the last step that ``deepfreeze resume-check`` has
    asked for."""

    step: int
    signal: str | None = None


@dataclass(frozen=True, kw_only=True)
class Counted(Event):
    """The counters of rank 0's engine at the end of an attempt. ``engine``: calls, bytes and seconds, as
    ``veloc_bindings.EmbeddedEngine.stats`` returns them; another backend may have other members."""

    engine: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class End(Event):
    """The attempt has ended. ``finished``: training came to its end and every checkpoint was committed or has failed; else an exception
    or a call of ``close`` ended it. ``error``: the exception, if DeepFreeze has raised it. ``trained``: False if no training has begun: the
    run was opened alone; else None."""

    finished: bool
    error: str | None = None
    trained: bool | None = None
