"""What the engine reports about a checkpoint, told to the training's user: as figures, warnings, errors."""

from __future__ import annotations

import os
from collections.abc import Sequence

from deepfreeze.errors import EngineError
from deepfreeze.store.run import END_THIS_JOB
from deepfreeze.training.checkpoint_warning import warn
from deepfreeze.training.stats import Stats
from veloc_bindings import DIVERGED, EXTERNAL, OK, TAKEN, Report

_MEND = "mend what the message names; older checkpoints are untouched and training can go on"
_ALIKE = (
    "wrap the optimizer, so that it averages its gradients (deepfreeze.DistributedOptimizer, or Horovod's own with tf_keras), and "
    "make the ranks alike before training begins (deepfreeze.BroadcastState, or Horovod's broadcast callback)"
)


def note(report: Report, run: str, replicated: Sequence[str], stats: Stats) -> EngineError | None:
    """Enters a report into ``stats`` and warns of what training survives; returns the error if the checkpoint failed.

    ``replicated``: the tensors that the ranks should hold alike, in the order of the report's index.
    """
    if report.step < 0:
        warn(report.message)
        return None
    where = os.path.join(run, f"step {report.step}")
    if report.code == DIVERGED:
        return _divergence(report, where, replicated)
    if report.code != OK:
        return EngineError(
            where=where,
            expected="the checkpoint to be committed",
            found=report.message.rstrip("."),
            todo=END_THIS_JOB if report.code == TAKEN else _MEND,
        )
    if report.diverged >= 0 and report.step not in stats.diverged:
        stats.diverged[report.step] = replicated[report.diverged]
        warn(_divergence(report, where, replicated))
    if report.local_s >= 0:
        stats.local[report.step] = report.local_s
    if report.level == EXTERNAL:
        stats.note_commit(report.step, report.external_s)
    return None


def _divergence(report: Report, where: str, replicated: Sequence[str]) -> EngineError:
    """Rank 0 knows in what the ranks differ; the others quote its engine's message, which ends with the usual causes."""
    found, _, _ = report.message.partition("; ")
    return EngineError(
        where=where,
        expected="the same weights on all ranks",
        found=f"{found}: {replicated[report.diverged]}",
        todo=_ALIKE,
    )


def unlike(run: str, step: int, ranks: Sequence[int]) -> EngineError:
    """What to warn of when ``ranks`` hold other weights than rank 0, before a checkpoint shows in which tensor."""
    found = f"others on rank {', '.join(map(str, ranks[:10]))} than on rank 0"
    return EngineError(
        where=os.path.join(run, f"step {step}"), expected="the same weights on all ranks", found=found, todo=_ALIKE
    )
