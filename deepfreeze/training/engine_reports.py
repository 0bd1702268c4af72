"""Turns the engine's reports about checkpoints into events and errors."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence

from deepfreeze.engine.records import DIVERGED, INFORMS, OK, SUPERSEDED, TAKEN, Report, UnderWay
from deepfreeze.errors import END_THIS_JOB, EngineError
from deepfreeze.events.event import Diverged, Event, External, Local, Superseded, Unfinished
from deepfreeze.events.events import Events
from deepfreeze.events.stats import NewestByStep
from deepfreeze.format.levels import Level

_MEND = "mend what the message names; older checkpoints are untouched and training can go on"
_ALIKE = (
    "wrap the optimizer, so that it averages its gradients (deepfreeze.DistributedOptimizer, or Horovod's own with tf_keras), and "
    "make the ranks alike before training begins (deepfreeze.BroadcastState, or Horovod's broadcast callback)"
)


class EngineReports:
    """Turns the engine's reports into events. The engine reports the whole state of a checkpoint each time it changes; an event comes
    once."""

    def __init__(self, run: str, replicated: Sequence[str], events: Events) -> None:
        """``run``: the run's path; ``replicated``: the names of the replicated tensors, to which ``Report.diverged`` is an index."""
        self._run, self._replicated, self._events = run, replicated, events
        self._told: NewestByStep[frozenset[str]] = NewestByStep()  # step -> kinds of the events that were emitted

    def enter(self, reports: Sequence[Report]) -> list[tuple[int, EngineError, bool]]:
        """Emits what is new in ``reports``. Returns of each checkpoint that has failed the step, the error, and whether the store alone is
        the cause: neither differ the ranks, nor has another attempt taken the run. The caller emits the failure, because it knows whether
        the error is raised."""
        self._events.flush()
        return [
            (report.step, error, report.code not in (DIVERGED, TAKEN))
            for report in reports
            if (error := self._enter(report)) is not None
        ]

    def _enter(self, report: Report) -> EngineError | None:
        if report.step < 0:
            if report.level == INFORMS:
                self._events.notify("info", report.message)
            else:
                self._events.warn(report.message)
            return None
        step, where = report.step, os.path.join(self._run, f"step {report.step}")
        if report.diverged >= 0 and report.code in (OK, DIVERGED) and self._is_new(step, "diverged"):
            message, tensor = str(_divergence(report, where, self._replicated)), self._replicated[report.diverged]
            self._events.emit(Diverged(step=step, message=message, tensor=tensor, refused=report.code == DIVERGED))
        if report.code == DIVERGED:
            return _divergence(report, where, self._replicated)
        if report.code == SUPERSEDED:
            if self._is_new(step, "superseded"):
                self._events.emit(Superseded(step=step, by=report.superseded_by))
            return None
        if report.code != OK:
            return EngineError(
                where=where,
                expected="the checkpoint to be committed",
                found=report.message.rstrip("."),
                todo=END_THIS_JOB if report.code == TAKEN else _MEND,
            )
        for event in self.progress(time.time_ns(), time.monotonic(), (report,)):
            self._events.emit(event)
        return None

    def progress(self, t: int, m: float, reports: Sequence[Report]) -> Iterator[Event]:
        """The events of the levels that the checkpoints have reached since their last reports. For ``Events.notes``, with reports that
        tell of progress alone."""
        for report in reports:
            if report.local_s >= 0 and self._is_new(report.step, Level.LOCAL.label):
                yield Local(t=t, m=m, step=report.step, seconds=report.local_s)
            if report.level == Level.EXTERNAL and self._is_new(report.step, Level.EXTERNAL.label):
                yield External(t=t, m=m, step=report.step, seconds=report.external_s, written=report.written_s)

    def _is_new(self, step: int, kind: str) -> bool:
        told = self._told.get(step, frozenset())
        if kind in told:
            return False
        self._told[step] = told | {kind}
        return True


def unfinished(under_way: Sequence[UnderWay]) -> list[Unfinished]:
    """The engine's answer about the unfinished checkpoints, as the event ``Progress`` has it."""
    return [
        Unfinished(
            step=one.step,
            level=Level(one.level).label,
            nbytes=one.nbytes,
            local=one.local_bytes,
            external=one.external_bytes,
            published=one.published,
            seconds=round(one.age_s, 3),
            waits_for=one.waits_for.removeprefix("waits for "),
        )
        for one in under_way
    ]


def _divergence(report: Report, where: str, replicated: Sequence[str]) -> EngineError:
    """The error, or warning, of rank 0 if the ranks differ in a replicated tensor. Only rank 0 knows the tensor. The engine's message ends
    with the usual causes, after "; ": they are left out, because ``todo`` names the remedy."""
    found, _, _ = report.message.partition("; ")
    return EngineError(
        where=where,
        expected="the same weights on all ranks",
        found=f"{found}: {replicated[report.diverged]}",
        todo=_ALIKE,
    )


def weights_differ(run: str, step: int, ranks: Sequence[int]) -> EngineError:
    """The warning that ``ranks`` have other weights than rank 0 after ``step``. Which tensor differs is known at the first checkpoint."""
    found = f"others on rank {', '.join(map(str, ranks[:10]))} than on rank 0"
    return EngineError(
        where=os.path.join(run, f"step {step}"), expected="the same weights on all ranks", found=found, todo=_ALIKE
    )
