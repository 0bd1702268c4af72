"""The part for a rehearsal, which the environment asks for: ``deepfreeze resume-check`` and ``deepfreeze tune`` start programs so."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import NamedTuple

from deepfreeze.plan.policy import Policy
from deepfreeze.plan.rehearsal import Rehearsal
from deepfreeze.plan.schedule import Execution, Schedule
from deepfreeze.store.rules import Latest
from deepfreeze.training.begun import Begun
from deepfreeze.training.options import Options
from deepfreeze.training.part import Part
from deepfreeze.training.run_path import RunPath
from deepfreeze.tuning.program_run import ProgramRun


class Given(NamedTuple):
    """What a program gives a training: its ``policy`` and ``options``; and the ``rehearsal`` that has changed them, None for none."""

    policy: Policy
    options: Options
    rehearsal: Rehearsal | ProgramRun | None


def rehearsed(run: RunPath, policy: Policy, options: Options) -> Given:
    """What a training is given where the environment may ask for a rehearsal, which has a run of its own in place of the program's."""
    rehearsal = Rehearsal.of(os.environ) or ProgramRun.of(os.environ)
    if rehearsal is None:
        return Given(policy, options, None)
    run.place = rehearsal.place
    keep = options.keep | Latest(rehearsal.keeps) if rehearsal.keeps else options.keep
    changed = replace(options, keep=keep, resume=rehearsal.resume or options.resume)
    return Given(rehearsal.policy(policy), changed, rehearsal)


class Rehearsing(Part):
    """Ends training where the rehearsal is over, and kills the process where it asks for that."""

    def __init__(self, begun: Begun, rehearsal: Rehearsal | ProgramRun) -> None:
        self._rehearsal, self._began, self._agreement = rehearsal, begun.open_run.attempt.step, begun.agreement

    def ended(self, done: Execution, schedule: Schedule) -> None:
        """Ends training at the rehearsal's last step."""
        if self._rehearsal.ends(schedule.step):
            self._agreement.end_rehearsal(self._rehearsal.name)

    def kills_after(self, step: int) -> bool:
        """Whether the process is killed when the checkpoint of ``step`` is committed."""
        return self._rehearsal.kills_at(step, self._began)
