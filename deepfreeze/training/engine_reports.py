"""Turns the engine's reports about checkpoints into figures of ``Stats``, warnings and errors."""

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


def enter_report(report: Report, run: str, replicated: Sequence[str], stats: Stats) -> EngineError | None:
    """Enters a report into ``stats``, and warns if it is a notice or tells that the ranks differ. Returns an error if the checkpoint has
    failed, else None.

    ``run``: the run's path; ``replicated``: the names of the replicated tensors, to which ``report.diverged`` is an index.
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
