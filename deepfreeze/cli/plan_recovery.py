"""How much a kill costs at most under a plan: the part of ``deepfreeze plan`` that says so, as a table, in sentences and for programs."""

from __future__ import annotations

from typing import Any

from deepfreeze import wording
from deepfreeze.cli.plan_sentences import seconds
from deepfreeze.events.restarts import Restarts
from deepfreeze.plan.auto_section import AutoSection
from deepfreeze.plan.recovery import Recovery, checkfreq, recovery, synchronous

HEADS = ("~a kill costs at most", ">steps", ">their time", ">with the restart")
# The bounds that are shown, by their names in JSON.
BOUNDS = {
    "plan": "with this plan",
    "checkfreq": "CheckFreq's bound: each commit within an interval",
    "synchronous": "where training waits for each commit",
}


def bounds(section: AutoSection, restarts: Restarts | None) -> dict[str, Recovery]:
    """The bounds for the plan's present interval, by the names of ``BOUNDS``. Without ``restarts`` the seconds are of the steps alone."""
    load = 0.0 if restarts is None else restarts.seconds
    profile, interval, cost = section.profile, section.interval, section.terms.cost
    return {
        "plan": recovery(interval, section.uncommitted, profile.iteration, profile.persist, load, cost),
        "checkfreq": checkfreq(interval, profile.iteration, load, cost),
        "synchronous": synchronous(interval, profile.iteration, load, cost),
    }


def restart(restarts: Restarts | None) -> str:
    """The time of a restart in words, for the line ``restart``."""
    if restarts is None:
        return "not known: no job of this run has told of its first step"
    return f"{seconds(restarts.seconds)} from the job's beginning to its first step ({_of(restarts)})"


def rows(section: AutoSection, restarts: Restarts | None) -> list[tuple[str, ...]]:
    """The rows of the table, for ``HEADS``."""
    found, alone = bounds(section, restarts), bounds(section, None)
    return [
        (words, str(alone[name].steps), seconds(alone[name].seconds), seconds(found[name].seconds) if restarts else "-")
        for name, words in BOUNDS.items()
    ]


def to_json(section: AutoSection, restarts: Restarts | None) -> dict[str, Any]:
    """The bounds as plain JSON values: for each of ``BOUNDS`` the ``steps`` and the ``seconds``, and the ``restart`` that the seconds
    include, null if it is not known."""
    told = restarts and {"seconds": restarts.seconds, "jobs": restarts.jobs, "restored": restarts.restored}
    found = bounds(section, restarts).items()
    return {"restart": told, **{name: {"steps": one.steps, "seconds": one.seconds} for name, one in found}}


def sentence(section: AutoSection, restarts: Restarts | None) -> str:
    """The paragraph of ``--explain``."""
    found, profile, interval = bounds(section, None), section.profile, section.interval
    ours, theirs, waiting = (found[name] for name in BOUNDS)
    beside = ours.steps - interval
    if beside < section.uncommitted * interval:
        why = f"and those of the {seconds(profile.persist)} from its hand-over to its commit ({beside})"
    else:
        why = f"and {beside} more, after which training waits for a commit"
    if restarts is None:
        both = "How long a restart takes is not known: no job of this run has told of its first step."
    else:
        both = (
            f"A restart takes {seconds(restarts.seconds)} ({_of(restarts)}), so a kill costs at most "
            f"{seconds(bounds(section, restarts)['plan'].seconds)} in all."
        )
    return (
        f"A kill: at most {wording.count(ours.steps, 'finished step')} must be trained again: those up to the next checkpoint ({interval}) "
        f"{why}. They take at most {seconds(ours.seconds)}. {both} Each checkpoint that is skipped, given up or failed adds an interval. "
        f"CheckFreq's bound is {wording.count(theirs.steps, 'step')} and {seconds(theirs.seconds)}; where training waits for each commit "
        f"it is {wording.count(waiting.steps, 'step')} and {seconds(waiting.seconds)}."
    )


def _of(restarts: Restarts) -> str:
    """The jobs whose restarts were timed, in words."""
    if restarts.restored:
        which = "the newest job that" if restarts.jobs == 1 else f"median of the {restarts.jobs} newest jobs that"
        return f"{which} restored a checkpoint"
    which = "a job that" if restarts.jobs == 1 else f"median of {restarts.jobs} jobs that"
    return f"{which} began from scratch: none has restored a checkpoint yet"
